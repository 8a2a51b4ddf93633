/* Starting and stopping the tracer from Python, and what the bindings share. */
#include <errno.h>
#include <stdarg.h>

#include "kernels_link.h"
#include "lock.h"
#include "python.h"
#include "sequence.h"
#include "tracer.h"

#define FIRST_ITERATIONS 8 /* after each of which Python is called */

static PyObject *report_function, *resolve_function, *iterated_function;
static PyObject *tracer_segment; /* the Segment in use: keeps it alive */

void argus_report(const char *format, ...) {
    PyObject *type, *value, *traceback, *result = NULL;
    va_list arguments;
    if (report_function == NULL)
        return;
    PyErr_Fetch(&type, &value, &traceback);
    va_start(arguments, format);
    PyObject *text = PyUnicode_FromFormatV(format, arguments);
    va_end(arguments);
    if (text != NULL)
        result = PyObject_CallFunctionObjArgs(report_function, text, NULL);
    Py_XDECREF(text);
    Py_XDECREF(result);
    argus_clear_exception();
    PyErr_Restore(type, value, traceback);
}

PyObject *argus_resolver(void) { return resolve_function; }

void argus_iterated(void) {
    if (!argus_tracer.active)
        return;
    if (argus_tracer.segment->lost) {
        argus_lock();
        argus_tracer_stop();
        argus_unlock();
        argus_report("tracing is off: the segment file was truncated by another program; "
                     "keep other programs away from it, and restart the job to trace it again");
        return;
    }
    if (argus_shared)
        argus_kernels_ask_profiler();
    uint64_t count = argus_tracer.segment->completed_iterations;
    if (count > FIRST_ITERATIONS || iterated_function == NULL)
        return;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *result = PyObject_CallFunction(iterated_function, "K", (unsigned long long)count);
    Py_XDECREF(result);
    argus_clear_exception();
    PyErr_Restore(type, value, traceback);
}

PyObject *argus_decorate(PyObject *object, PyObject *args, PyObject *kwargs) {
    PyObject *function = NULL;
    if (kwargs != NULL || !PyArg_UnpackTuple(args, "decorator", 1, 1, &function)) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "a decorator takes the function, nothing else");
        return NULL;
    }
    PyObject *module = PyImport_ImportModule("argus.tracer.decorate");
    PyObject *result = module == NULL ? NULL : PyObject_CallMethod(module, "wrap", "OO", object, function);
    Py_XDECREF(module);
    return result;
}

void argus_free_object(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

int argus_make_type(PyType_Spec *spec, PyTypeObject **type) {
    *type = (PyTypeObject *)PyType_FromSpec(spec);
    return *type == NULL ? -1 : 0;
}

/* ---- the module's functions ---- */

static void keep(PyObject **kept, PyObject *value) {
    PyObject *before = *kept;
    if (value == NULL)
        return;
    *kept = Py_NewRef(value);
    Py_XDECREF(before);
}

static PyObject *configure(PyObject *Py_UNUSED(module), PyObject *args, PyObject *kwargs) {
    static char *names[] = {"report", "resolve", "iterated", NULL};
    PyObject *report = NULL, *resolve = NULL, *iterated = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$OOO", names, &report, &resolve, &iterated))
        return NULL;
    keep(&report_function, report);
    keep(&resolve_function, resolve);
    keep(&iterated_function, iterated);
    Py_RETURN_NONE;
}

static PyObject *start(PyObject *Py_UNUSED(module), PyObject *args, PyObject *kwargs) {
    static char *names[] = {"segment", "cost_per_event", NULL};
    PyObject *object;
    double cost = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$d", names, &object, &cost))
        return NULL;
    if (!argus_is_segment(object))
        return PyErr_Format(PyExc_TypeError, "start() needs a Segment");
    struct argus_segment *segment = argus_open_segment(object);
    if (segment == NULL)
        return NULL;
    if (argus_tracer.segment != NULL)
        return PyErr_Format(PyExc_RuntimeError, "the tracer is already running");
    argus_lock();
    int failure = argus_tracer_start(segment, cost);
    argus_unlock();
    if (failure != 0) {
        errno = failure;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    PyObject *before = tracer_segment;
    tracer_segment = Py_NewRef(object);
    Py_XDECREF(before);
    Py_RETURN_NONE;
}

static PyObject *stop(PyObject *Py_UNUSED(module), PyObject *args, PyObject *kwargs) {
    static char *names[] = {"state", NULL};
    PyObject *state = Py_None, *segment = tracer_segment;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O", names, &state))
        return NULL;
    argus_lock();
    if (argus_tracer.segment != NULL)
        argus_tracer_stop();
    argus_unlock();
    if (segment == NULL)
        Py_RETURN_NONE;
    tracer_segment = NULL;
    PyObject *result = PyObject_CallMethod(segment, "close", "O", state);
    Py_DECREF(segment);
    return result;
}

static PyObject *source(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *object;
    int enabled;
    struct argus_text name;
    if (!PyArg_ParseTuple(args, "Op:source", &object, &enabled))
        return NULL;
    PyObject *text = argus_utf8(object, &name);
    if (text == NULL)
        return NULL;
    argus_lock();
    if (argus_tracer.active && argus_segment_writable(argus_tracer.segment)) {
        struct argus_source *record = argus_segment_source(argus_tracer.segment, name);
        if (record != NULL)
            argus_store(&record->enabled, (uint64_t)enabled);
    }
    argus_unlock();
    Py_DECREF(text);
    Py_RETURN_NONE;
}

static PyObject *refresh(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused)) {
    argus_tracer.coordinates++;
    Py_RETURN_NONE;
}

static PyObject *status(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused)) {
    const struct argus_tracer *t = &argus_tracer;
    argus_lock(); /* not while objects are made: a collection of garbage may end an iteration */
    const struct argus_segment *segment = t->segment;
    unsigned long long events = t->events, dropped = t->dropped + (segment == NULL ? 0 : segment->dropped);
    unsigned long long iterations = segment == NULL ? 0 : segment->completed_iterations;
    unsigned depth = t->depth;
    argus_unlock();
    return Py_BuildValue("{sNsKsKsKsI}", "active", PyBool_FromLong(t->active), "events", events, "dropped",
                         dropped, "iterations", iterations, "open_phases", depth);
}

static PyObject *set_clock(PyObject *Py_UNUSED(module), PyObject *now) {
    unsigned long long value = PyLong_AsUnsignedLongLong(now);
    if (PyErr_Occurred())
        return NULL;
    argus_test_clock = value;
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"configure", (PyCFunction)(void (*)(void))configure, METH_VARARGS | METH_KEYWORDS,
     "configure(*, report=None, resolve=None, iterated=None)\n--\n\n"
     "report(text): tells the user; resolve(group, peer): (group_id, members, nodes) of a communicator;\n"
     "iterated(count): called after each of the first iterations. What is not given stays."},
    {"start", (PyCFunction)(void (*)(void))start, METH_VARARGS | METH_KEYWORDS,
     "start(segment, *, cost_per_event=0.0)\n--\n\n"
     "The tracer of this process writes to the segment; cost in nanoseconds, for the tracer's self-report."},
    {"stop", (PyCFunction)(void (*)(void))stop, METH_VARARGS | METH_KEYWORDS,
     "stop(state=None)\n--\n\nStops the tracer and closes its segment with this state."},
    {"source", source, METH_VARARGS,
     "source(name, enabled)\n--\n\n"
     "Shows in the running tracer's segment whether a source of events is recording."},
    {"refresh", refresh, METH_NOARGS,
     "refresh()\n--\n\nCommunicators are named again: the coordinates changed."},
    {"status", status, METH_NOARGS, "status()\n--\n\nWhat the tracer has done, as a dict."},
    {"set_clock", set_clock, METH_O,
     "set_clock(now_ns)\n--\n\nFor tests: the tracer's clock stands still there; 0: it runs again."},
    {NULL, NULL, 0, NULL},
};

int argus_add_runtime(PyObject *module) { return PyModule_AddFunctions(module, functions); }
