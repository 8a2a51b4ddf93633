/* What the Python bindings share.  Limited API of Python 3.10. */
#ifndef ARGUS_PYTHON_H
#define ARGUS_PYTHON_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "segment.h"

/* The text of a str as UTF-8, lone surrogates replaced.  Returns a new
 * reference that keeps the text alive, or NULL with an exception. */
PyObject *argus_utf8(PyObject *object, struct argus_text *text);

/* Kind by name into *kind; -1 without an exception where there is no such kind. */
int argus_kind_from_text(struct argus_text text, uint64_t *kind);

/* What a phase of this name is where nobody says: compute, but for the names
 * that everybody uses for host work and communication. */
uint64_t argus_infer_kind(struct argus_text name);
const char *argus_kind_name(uint64_t kind);

/* The open segment inside a Segment object; NULL with an exception. */
struct argus_segment *argus_open_segment(PyObject *object);
int argus_is_segment(PyObject *object);

int argus_add_segment(PyObject *module); /* class Segment, own_segments() */
int argus_add_phases(PyObject *module);  /* phase(), collective(), … */
PyObject *argus_layout(PyObject *module, PyObject *unused);

#endif
