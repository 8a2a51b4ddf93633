/* Arguments from Python. */
#include "python.h"

PyObject *argus_utf8(PyObject *object, struct argus_text *text) {
    Py_ssize_t length;
    if (!PyUnicode_Check(object)) {
        PyErr_Format(PyExc_TypeError, "a str is needed, not %R", (PyObject *)Py_TYPE(object));
        return NULL;
    }
    text->data = PyUnicode_AsUTF8AndSize(object, &length);
    if (text->data != NULL) {
        text->length = (size_t)length;
        Py_INCREF(object);
        return object;
    }
    if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError))
        return NULL;
    PyErr_Clear();
    PyObject *bytes = PyUnicode_AsEncodedString(object, "utf-8", "replace");
    if (bytes != NULL) {
        text->data = PyBytes_AsString(bytes);
        text->length = (size_t)PyBytes_Size(bytes);
    }
    return bytes;
}

int argus_to_unsigned(PyObject *object, uint64_t *value) {
    long long number = PyLong_AsLongLong(object);
    if (number == -1 && PyErr_Occurred())
        return -1;
    if (number < 0) {
        PyErr_Format(PyExc_ValueError, "a number of nanoseconds, bytes or events can't be negative: %lld", number);
        return -1;
    }
    *value = (uint64_t)number;
    return 0;
}

int argus_take_count(const char *what, PyObject *object, uint64_t *value) {
    if (object == NULL || object == Py_None)
        return 0;
    long long number = PyLong_AsLongLong(object);
    if (number >= 0) {
        *value = (uint64_t)number;
        return 1;
    }
    argus_clear_exception();
    argus_report("%s: needs a whole number from 0 to 9223372036854775807; what is none is left out", what);
    return 0;
}

static int raise_again(void *exception) {
    PyObject *value = exception;
    PyErr_SetObject((PyObject *)Py_TYPE(value), value);
    Py_DECREF(value);
    return -1;
}

void argus_clear_exception(void) {
    PyObject *type, *value, *traceback;
    if (PyErr_Occurred() == NULL || PyErr_ExceptionMatches(PyExc_Exception)) {
        PyErr_Clear();
        return;
    }
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    Py_XDECREF(type);
    Py_XDECREF(traceback);
    if (value != NULL && Py_AddPendingCall(raise_again, value) < 0)
        Py_DECREF(value);
}

int argus_check_count(const char *method, Py_ssize_t count, Py_ssize_t least, Py_ssize_t most) {
    if (count >= least && count <= most)
        return 0;
    PyErr_Format(PyExc_TypeError, "%s() takes %zd to %zd arguments, not %zd", method, least, most, count);
    return -1;
}

int argus_optional_int(PyObject *object, void *target) {
    if (object == Py_None) {
        *(int32_t *)target = ARGUS_UNKNOWN;
        return 1;
    }
    long value = PyLong_AsLong(object);
    if (value == -1 && PyErr_Occurred())
        return 0;
    if (value < -1 || value > INT32_MAX) {
        PyErr_Format(PyExc_ValueError, "%ld is out of range: -1 (unknown) to 2147483647", value);
        return 0;
    }
    *(int32_t *)target = (int32_t)value;
    return 1;
}

int argus_bind(const char *function, PyObject *const *args, Py_ssize_t count, PyObject *keywords,
               const char *const *names, PyObject **given) {
    Py_ssize_t known = 0, named = keywords == NULL ? 0 : PyTuple_Size(keywords);
    while (names[known] != NULL)
        known++;
    if (count > known) {
        PyErr_Format(PyExc_TypeError, "%s() takes at most %zd arguments, not %zd", function, known, count);
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++)
        given[i] = args[i];
    for (Py_ssize_t k = 0; k < named; k++) {
        PyObject *name = PyTuple_GetItem(keywords, k);
        Py_ssize_t i = 0;
        while (i < known && PyUnicode_CompareWithASCIIString(name, names[i]) != 0)
            i++;
        if (i == known || i < count) {
            PyErr_Format(PyExc_TypeError,
                         i == known ? "%s() has no argument %R" : "%s() got argument %R twice", function, name);
            return -1;
        }
        given[i] = args[count + k];
    }
    return 0;
}
