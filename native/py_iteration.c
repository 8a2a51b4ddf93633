/* iteration(), mark(), pause(), work(). */
#include "lock.h"
#include "nvtx/events.h"
#include "python.h"
#include "tracer.h"

typedef struct {
    PyObject_HEAD
    uint64_t token;
    unsigned depth; /* how often it is entered */
    unsigned generation;
    int numbered;
    uint64_t number;
} iteration_object;

typedef struct {
    PyObject_HEAD
    PyObject *kind, *kept;
    struct argus_text text;
    unsigned depth;
    unsigned generation;
} pause_object;

static PyTypeObject *iteration_type, *pause_type;

/* ---- iterations ---- */

static PyObject *iteration_enter(PyObject *object, PyObject *Py_UNUSED(unused)) {
    iteration_object *self = (iteration_object *)object;
    if (argus_tracer.active) {
        if (self->generation != argus_tracer.generation) {
            self->generation = argus_tracer.generation;
            self->depth = 0;
        }
        if (self->depth++ == 0) {
            argus_lock();
            argus_nvtx_outranked = argus_tracer.generation;
            argus_tracer_begin_iteration(self->token);
            argus_unlock();
        }
    }
    return Py_NewRef(object);
}

static PyObject *iteration_exit(PyObject *object, PyObject *const *args, Py_ssize_t count) {
    iteration_object *self = (iteration_object *)object;
    if (self->depth != 0 && --self->depth == 0 && argus_tracer.active) {
        argus_lock();
        argus_tracer_end_iteration(self->token, self->numbered ? &self->number : NULL,
                                   count > 0 && args[0] != Py_None);
        argus_unlock();
        argus_iterated();
    }
    Py_RETURN_NONE;
}

static PyObject *iteration(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count,
                           PyObject *keywords) {
    static const char *const names[] = {"number", NULL};
    static uint64_t tokens;
    PyObject *given[1] = {NULL};
    uint64_t number = 0;
    if (argus_bind("iteration", args, count, keywords, names, given) < 0)
        return NULL;
    int numbered = argus_take_count("iteration()", given[0], &number);
    iteration_object *self = PyObject_New(iteration_object, iteration_type);
    if (self == NULL)
        return NULL;
    self->token = ++tokens;
    self->depth = 0;
    self->generation = 0;
    self->numbered = numbered;
    self->number = number;
    return (PyObject *)self;
}

static void dealloc_iteration(PyObject *object) {
    iteration_object *self = (iteration_object *)object;
    if (self->depth != 0 && argus_tracer.active) {
        argus_lock();
        argus_tracer_abandon_iteration(self->token);
        argus_unlock();
    }
    argus_free_object(object);
}

static PyObject *mark(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const char *const names[] = {"number", "begin", NULL};
    PyObject *given[2] = {NULL, Py_True};
    uint64_t number = 0;
    if (argus_bind("mark", args, count, keywords, names, given) < 0)
        return NULL;
    int numbered = argus_take_count("mark()", given[0], &number);
    int begin = PyObject_IsTrue(given[1]);
    if (begin < 0)
        return NULL;
    if (argus_tracer.active) {
        argus_lock();
        argus_nvtx_outranked = argus_tracer.generation;
        argus_tracer_mark(numbered ? &number : NULL, begin);
        argus_unlock();
        argus_iterated();
    }
    Py_RETURN_NONE;
}

/* ---- pauses ---- */

static PyObject *pause_enter(PyObject *object, PyObject *Py_UNUSED(unused)) {
    pause_object *self = (pause_object *)object;
    if (argus_tracer.active) {
        if (self->generation != argus_tracer.generation) {
            self->generation = argus_tracer.generation;
            self->depth = 0;
        }
        self->depth++;
        argus_lock();
        argus_tracer_pause(self->text);
        argus_unlock();
    }
    return Py_NewRef(object);
}

static void leave_pause(pause_object *self) {
    if (self->depth == 0)
        return;
    self->depth--;
    if (argus_tracer.active && self->generation == argus_tracer.generation) {
        argus_lock();
        argus_tracer_resume();
        argus_unlock();
    }
}

static PyObject *pause_exit(PyObject *object, PyObject *const *Py_UNUSED(args), Py_ssize_t Py_UNUSED(count)) {
    leave_pause((pause_object *)object);
    Py_RETURN_NONE;
}

static PyObject *pause_function(PyObject *Py_UNUSED(module), PyObject *kind) {
    struct argus_text text;
    PyObject *kept = PyUnicode_Check(kind) ? argus_utf8(kind, &text) : PyUnicode_FromString("");
    if (kept == NULL)
        return NULL;
    if (!PyUnicode_Check(kind)) {
        argus_report("pause(): a kind is a str; %R counts as other", (PyObject *)Py_TYPE(kind));
        text = (struct argus_text){"other", 5};
    }
    pause_object *self = PyObject_New(pause_object, pause_type);
    if (self == NULL) {
        Py_DECREF(kept);
        return NULL;
    }
    self->kind = Py_NewRef(kind);
    self->kept = kept;
    self->text = text;
    self->depth = 0;
    self->generation = 0;
    return (PyObject *)self;
}

static void dealloc_pause(PyObject *object) {
    pause_object *self = (pause_object *)object;
    while (self->depth != 0)
        leave_pause(self);
    Py_DECREF(self->kind);
    Py_DECREF(self->kept);
    argus_free_object(object);
}

/* ---- work ---- */

static void drop_work(PyObject *unit) {
    PyErr_Clear();
    argus_lock();
    argus_tracer_drop();
    argus_unlock();
    argus_report("work(%U=...): an amount is a number >= 0, and at most 16 pairs of unit and phase are kept; "
                 "what does not fit is left out", unit);
}

static void add_work(PyObject *unit, PyObject *value, struct argus_text phase) {
    struct argus_text text;
    PyObject *number = PyNumber_Float(value);
    double amount = number == NULL ? -1 : PyFloat_AsDouble(number);
    Py_XDECREF(number);
    argus_clear_exception();
    PyObject *kept = argus_utf8(unit, &text);
    /* Converting may have run Python code: the tracer may have stopped. */
    if (argus_tracer.active) {
        int added = 0;
        if (kept != NULL && amount >= 0 && amount < 1e300) {
            argus_lock();
            added = argus_segment_work(argus_tracer.segment, text, phase, amount) == 0;
            argus_unlock();
        }
        if (!added)
            drop_work(unit);
    }
    PyErr_Clear();
    Py_XDECREF(kept);
}

static PyObject *work(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    Py_ssize_t named = keywords == NULL ? 0 : PyTuple_Size(keywords);
    PyObject *phase = count > 0 ? args[0] : Py_None, *kept = NULL;
    struct argus_text text = {"", 0};
    if (count > 1)
        return PyErr_Format(PyExc_TypeError, "work() takes units by name, as in work(tokens=4096)");
    if (!argus_tracer.active)
        Py_RETURN_NONE;
    for (Py_ssize_t k = 0; k < named; k++)
        if (PyUnicode_CompareWithASCIIString(PyTuple_GetItem(keywords, k), "phase") == 0)
            phase = args[count + k];
    if (phase != Py_None && (kept = argus_utf8(phase, &text)) == NULL) {
        PyErr_Clear();
        argus_report("work(phase=): a phase is a str; work of %R is left out", (PyObject *)Py_TYPE(phase));
        Py_RETURN_NONE;
    }
    for (Py_ssize_t k = 0; k < named; k++) {
        PyObject *unit = PyTuple_GetItem(keywords, k);
        if (PyUnicode_CompareWithASCIIString(unit, "phase") != 0)
            add_work(unit, args[count + k], text);
    }
    Py_XDECREF(kept);
    Py_RETURN_NONE;
}

/* ---- types and functions ---- */

#define FAST(function) (PyCFunction)(void (*)(void))function
static PyMethodDef iteration_methods[] = {
    {"__enter__", iteration_enter, METH_NOARGS, NULL},
    {"__exit__", FAST(iteration_exit), METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};
static PyMethodDef pause_methods[] = {
    {"__enter__", pause_enter, METH_NOARGS, NULL},
    {"__exit__", FAST(pause_exit), METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot iteration_slots[] = {
    {Py_tp_doc, "One iteration: `with iteration(): …`, or a decorator of the function that does one."},
    {Py_tp_dealloc, dealloc_iteration},
    {Py_tp_call, argus_decorate},
    {Py_tp_methods, iteration_methods},
    {0, NULL},
};
static PyType_Slot pause_slots[] = {
    {Py_tp_doc, "A declared pause: `with pause('evaluation'): …`, or a decorator."},
    {Py_tp_dealloc, dealloc_pause},
    {Py_tp_call, argus_decorate},
    {Py_tp_methods, pause_methods},
    {0, NULL},
};
static PyType_Spec iteration_spec = {"argus._native.Iteration", sizeof(iteration_object), 0,
                                     Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, iteration_slots};
static PyType_Spec pause_spec = {"argus._native.Pause", sizeof(pause_object), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, pause_slots};
static PyMethodDef functions[] = {
    {"iteration", FAST(iteration), METH_FASTCALL | METH_KEYWORDS,
     "iteration(number=None)\n--\n\n"
     "One iteration, as context manager or decorator; number None: the one after the last.\n\n"
     "It begins where the last one ended, so that the time between them counts. A block that is left by an\n"
     "exception is no iteration; one within another, or within a pause, is part of it."},
    {"mark", FAST(mark), METH_FASTCALL | METH_KEYWORDS,
     "mark(number=None, begin=True)\n--\n\n"
     "Ends the iteration and, unless begin is false, begins the next; the first call only begins one.\n"
     "For integrations that see boundaries, not blocks; ignored where iteration() is used."},
    {"pause", pause_function, METH_O,
     "pause(kind)\n--\n\n"
     "A declared pause (evaluation, checkpoint, …), as context manager or decorator: no part of an iteration."},
    {"work", FAST(work), METH_FASTCALL | METH_KEYWORDS,
     "work(phase=None, **units)\n--\n\nAdds units of work, as in work(tokens=4096); phase None: the iteration's."},
    {NULL, NULL, 0, NULL},
};

int argus_add_iterations(PyObject *module) {
    return argus_make_type(&iteration_spec, &iteration_type) < 0 || argus_make_type(&pause_spec, &pause_type) < 0
               ? -1
               : PyModule_AddFunctions(module, functions);
}
