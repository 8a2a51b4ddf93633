/* The kernel classes in Python. */
#include "py_kernels.h"

#include "kernel_classes.h"

static const char capsule_name[] = "argus.kernel_patterns";

static void free_patterns(PyObject *capsule) {
    argus_kernel_patterns_free(PyCapsule_GetPointer(capsule, capsule_name));
}

static PyObject *kernel_classes(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused)) {
    PyObject *classes = PyTuple_New(ARGUS_KERNEL_CLASSES);
    for (int i = 0; classes != NULL && i < ARGUS_KERNEL_CLASSES; i++) {
        PyObject *name = PyUnicode_FromString(argus_kernel_class_name((enum argus_kernel_class)i));
        if (name == NULL || PyTuple_SetItem(classes, i, name) < 0)
            Py_CLEAR(classes);
    }
    return classes;
}

static PyObject *kernel_class(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *object, *capsule = Py_None;
    struct argus_kernel_patterns *patterns = NULL;
    struct argus_text text;
    if (!PyArg_ParseTuple(args, "O|O:kernel_class", &object, &capsule))
        return NULL;
    if (capsule != Py_None && (patterns = PyCapsule_GetPointer(capsule, capsule_name)) == NULL)
        return NULL;
    PyObject *keep = argus_utf8(object, &text); /* ends with a zero byte, as the text of any bytes object */
    if (keep == NULL)
        return NULL;
    PyObject *result = PyUnicode_FromString(argus_kernel_class_name(argus_kernel_classify(text.data, patterns)));
    Py_DECREF(keep);
    return result;
}

static PyObject *read_kernel_patterns(PyObject *Py_UNUSED(module), PyObject *path) {
    char complaint[1024];
    PyObject *bytes = NULL, *capsule = Py_None;
    if (!PyUnicode_FSConverter(path, &bytes))
        return NULL;
    struct argus_kernel_patterns *patterns =
        argus_kernel_patterns_read(PyBytes_AsString(bytes), complaint, sizeof complaint);
    Py_DECREF(bytes);
    if (patterns == NULL)
        Py_INCREF(capsule);
    else if ((capsule = PyCapsule_New(patterns, capsule_name, free_patterns)) == NULL) {
        argus_kernel_patterns_free(patterns);
        return NULL;
    }
    PyObject *text = PyUnicode_DecodeUTF8(complaint, (Py_ssize_t)strlen(complaint), "replace");
    PyObject *result = text == NULL ? NULL : PyTuple_Pack(2, capsule, text);
    Py_DECREF(capsule);
    Py_XDECREF(text);
    return result;
}

static PyMethodDef functions[] = {
    {"kernel_classes", kernel_classes, METH_NOARGS,
     "kernel_classes()\n--\n\nThe classes of GPU kernels, in the order of their numbers in the segment."},
    {"kernel_class", kernel_class, METH_VARARGS,
     "kernel_class(name, patterns=None, /)\n--\n\n"
     "The class of a kernel by its name, mangled or not; patterns from read_kernel_patterns() go first."},
    {"read_kernel_patterns", read_kernel_patterns, METH_O,
     "read_kernel_patterns(path)\n--\n\n"
     "(patterns, complaint): the good lines of a file of patterns, or None where there are none; and what is "
     "wrong with it, or an empty text."},
    {NULL, NULL, 0, NULL},
};

int argus_add_kernels(PyObject *module) { return PyModule_AddFunctions(module, functions); }
