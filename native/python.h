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

/* A number >= 0.  -1 with an exception. */
int argus_to_unsigned(PyObject *object, uint64_t *value);
/* Checks how many arguments a METH_FASTCALL method got.  -1 with an exception. */
int argus_check_count(const char *method, Py_ssize_t count, Py_ssize_t least, Py_ssize_t most);
/* For "O&": an int32_t >= -1, None is -1. */
int argus_optional_int(PyObject *object, void *target);

/* A number >= 0 that the training loop gives.  1: there is one.  0: there is none,
 * or one that can't be used, which the user is told: a value never raises.
 * `what` names it. */
int argus_take_count(const char *what, PyObject *object, uint64_t *value);
/* Clears the exception.  One that is not the tracer's, such as the KeyboardInterrupt
 * of a signal that came meanwhile, is raised in the main thread instead. */
void argus_clear_exception(void);

/* Sorts the arguments of a METH_FASTCALL | METH_KEYWORDS function into given[],
 * by the NULL-terminated names[]; what is not given stays.  -1 with an exception. */
int argus_bind(const char *function, PyObject *const *args, Py_ssize_t count, PyObject *keywords,
               const char *const *names, PyObject **given);

/* Tells the user once, through the function given to configure(); without one,
 * not at all.  Never raises. */
void argus_report(const char *format, ...);

/* configure()'s other function, borrowed, or NULL. */
PyObject *argus_resolver(void);

/* To be called where an iteration ended: gives up a lost segment, and tells Python of the first ones. */
void argus_iterated(void);

/* object as a decorator of function: a new reference. */
PyObject *argus_decorate(PyObject *object, PyObject *args, PyObject *kwargs);

void argus_free_object(PyObject *object);
/* Makes the type; a new reference in *type stays there for good. */
int argus_make_type(PyType_Spec *spec, PyTypeObject **type);

/* A phase as the tracer and other bindings see it. */
struct argus_phase_ref {
    unsigned index;
    int overflowed; /* it found no record and goes to "other" */
};
PyObject *argus_get_phase(PyObject *name, PyObject *kind); /* a new reference, or NULL with an exception */
struct argus_phase_ref argus_phase_resolve(PyObject *phase);

int argus_add_runtime(PyObject *module);     /* start(), stop(), configure(), … */
int argus_add_segment(PyObject *module);     /* Segment, own_segments() */
int argus_add_phases(PyObject *module);      /* Phase, phase() */
int argus_add_collectives(PyObject *module); /* Collective, collective() */
int argus_add_kernels_link(PyObject *module); /* kernels_start(), kernels_status() */
int argus_add_iterations(PyObject *module);  /* Iteration, iteration(), mark(), Pause, pause(), work() */
int argus_add_collections(PyObject *module); /* on_collection() */
int argus_add_nvtx(PyObject *module);        /* nvtx_rules(), nvtx_target(), nvtx_status() */
int argus_add_stacks(PyObject *module);      /* stacks_start(), stacks_stop(), stack_categories(), … */
PyObject *argus_layout(PyObject *module, PyObject *unused);

#endif
