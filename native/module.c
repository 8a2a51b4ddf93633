/* The extension module argus._native. */
#include "py_kernels.h"
#include "python.h"

static PyObject *monotonic_ns(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused)) {
    return PyLong_FromUnsignedLongLong(argus_monotonic_ns());
}

static PyObject *infer_kind(PyObject *Py_UNUSED(module), PyObject *name) {
    struct argus_text text;
    PyObject *keep = argus_utf8(name, &text);
    if (keep == NULL)
        return NULL;
    PyObject *kind = PyUnicode_FromString(argus_kind_name(argus_infer_kind(text)));
    Py_DECREF(keep);
    return kind;
}

static PyMethodDef functions[] = {
    {"layout", argus_layout, METH_NOARGS,
     "layout()\n--\n\n"
     "The segment's layout: {'constants': {name: value}, 'structs': {name: {'size': bytes, 'fields': "
     "{name: (offset, format, length)}}}}; format is numpy's, or the name of another structure."},
    {"monotonic_ns", monotonic_ns, METH_NOARGS, "monotonic_ns()\n--\n\nCLOCK_MONOTONIC in nanoseconds."},
    {"infer_kind", infer_kind, METH_O,
     "infer_kind(name)\n--\n\nThe kind of a phase of this name where nobody says."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "argus._native", "What ARGUS does inside the training process.", -1, functions,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__native(void) {
    PyObject *module = PyModule_Create(&definition);
    if (module != NULL && (argus_add_segment(module) < 0 || argus_add_runtime(module) < 0 ||
                           argus_add_phases(module) < 0 || argus_add_collectives(module) < 0 ||
                           argus_add_iterations(module) < 0 || argus_add_kernels(module) < 0 ||
                           argus_add_kernels_link(module) < 0 || argus_add_nvtx(module) < 0 ||
                           argus_add_collections(module) < 0 || argus_add_stacks(module) < 0 ||
                           PyModule_AddStringConstant(module, "__version__", ARGUS_VERSION) < 0))
        Py_CLEAR(module);
    return module;
}
