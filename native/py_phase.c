/* phase(): named intervals, as context managers and decorators. */
#include "lock.h"
#include "python.h"
#include "tracer.h"

/* A loop that makes up names must not fill the memory. */
#define REMEMBERED 1024

typedef struct {
    PyObject_HEAD
    PyObject *name;
    PyObject *kept; /* holds the text */
    struct argus_text text;
    PyObject *given_kind; /* as last given; NULL: never */
    uint64_t kind;
    int explicit;
    int data_dependent;
    unsigned generation; /* of which ref is valid */
    struct argus_phase_ref ref;
} phase_object;

static PyTypeObject *phase_type;
static PyObject *other_name; /* "other" */
static PyObject *kind_word; /* "kind", interned as keywords in code are */
static PyObject *known; /* {name: Phase} */
static PyObject *self_function; /* phase(), for pickling */

static void resolve(phase_object *self) {
    self->ref.index = argus_segment_phase(argus_tracer.segment, self->text, self->kind);
    self->ref.overflowed = self->ref.index == ARGUS_OTHER_PHASE &&
                           PyUnicode_CompareWithASCIIString(self->name, "other") != 0;
    self->generation = argus_tracer.generation;
    if (self->data_dependent && !self->ref.overflowed)
        argus_segment_flag_phase(argus_tracer.segment, self->ref.index, ARGUS_PHASE_DATA_DEPENDENT);
}

struct argus_phase_ref argus_phase_resolve(PyObject *phase) {
    phase_object *self = (phase_object *)phase;
    argus_lock();
    if (self->generation != argus_tracer.generation)
        resolve(self);
    argus_unlock();
    return self->ref;
}

static PyObject *phase_enter(PyObject *object, PyObject *Py_UNUSED(unused)) {
    if (argus_tracer.active) {
        phase_object *self = (phase_object *)object;
        argus_lock();
        if (self->generation != argus_tracer.generation)
            resolve(self);
        if (self->ref.overflowed)
            argus_tracer_drop();
        argus_tracer_begin(self->ref.index);
        argus_unlock();
    }
    return Py_NewRef(object);
}

/* Bound, and called as a function of the class at times: contextlib passes the object itself. */
static PyObject *kept_enter(PyObject *object, PyObject *const *Py_UNUSED(args), Py_ssize_t Py_UNUSED(count)) {
    return phase_enter(object, NULL);
}

static PyObject *phase_exit(PyObject *object, PyObject *const *Py_UNUSED(args), Py_ssize_t Py_UNUSED(count)) {
    phase_object *self = (phase_object *)object;
    if (argus_tracer.active && self->generation == argus_tracer.generation) {
        argus_lock();
        argus_tracer_end(self->ref.index);
        argus_unlock();
    }
    Py_RETURN_NONE;
}

/* The first explicit kind stands. */
static void take_kind(phase_object *self, PyObject *kind) {
    struct argus_text text;
    uint64_t value;
    PyObject *kept = argus_utf8(kind, &text);
    int valid = kept != NULL && argus_kind_from_text(text, &value) == 0;
    Py_XDECREF(kept);
    argus_clear_exception();
    Py_XDECREF(self->given_kind);
    self->given_kind = Py_NewRef(kind);
    if (!valid) {
        argus_report("phase %R: kind is compute, host, communication or mixed, not %R; it is taken as mixed, "
                     "which accuses nobody", self->name, kind);
        value = ARGUS_KIND_MIXED;
    }
    if (self->explicit && self->kind != value) {
        argus_report("phase %R is %s and %s in different places; the first stands", self->name,
                     argus_kind_name(self->kind), argus_kind_name(value));
        return;
    }
    self->explicit = 1;
    self->kind = value;
    if (argus_tracer.active && self->generation == argus_tracer.generation &&
        self->ref.index != ARGUS_OTHER_PHASE) {
        argus_lock();
        argus_segment_set_kind(argus_tracer.segment, self->ref.index, value);
        argus_unlock();
    }
}

static PyObject *new_phase(PyObject *name, PyTypeObject *type) {
    struct argus_text text;
    PyObject *kept = argus_utf8(name, &text);
    if (kept == NULL)
        return NULL;
    phase_object *self = PyObject_New(phase_object, type);
    if (self == NULL) {
        Py_DECREF(kept);
        return NULL;
    }
    self->name = Py_NewRef(name);
    self->kept = kept;
    self->text = text;
    self->given_kind = NULL;
    self->kind = argus_infer_kind(text);
    self->explicit = 0;
    self->data_dependent = 0;
    self->generation = 0; /* the tracer's begin at 1 */
    return (PyObject *)self;
}

/* `with` looks __enter__ and __exit__ up on the class, and binding what it finds
 * there costs two allocations a time.  A class of its own holds them bound. */
static PyObject *new_kept_phase(PyObject *name) {
    static PyMethodDef enter = {"__enter__", (PyCFunction)(void (*)(void))kept_enter, METH_FASTCALL, NULL};
    static PyMethodDef exit = {"__exit__", (PyCFunction)(void (*)(void))phase_exit, METH_FASTCALL, NULL};
    static PyType_Slot none[] = {{0, NULL}};
    static PyType_Spec own = {"argus._native.Phase", sizeof(phase_object), 0,
                              Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, none};
    PyObject *self = NULL, *bound_enter = NULL, *bound_exit = NULL;
    PyObject *type = PyType_FromSpecWithBases(&own, (PyObject *)phase_type);
    if (type != NULL)
        self = new_phase(name, (PyTypeObject *)type);
    if (self != NULL) {
        bound_enter = PyCFunction_NewEx(&enter, self, NULL);
        bound_exit = PyCFunction_NewEx(&exit, self, NULL);
        if (bound_enter == NULL || bound_exit == NULL ||
            PyObject_SetAttrString(type, "__enter__", bound_enter) < 0 ||
            PyObject_SetAttrString(type, "__exit__", bound_exit) < 0)
            Py_CLEAR(self);
    }
    Py_XDECREF(bound_enter);
    Py_XDECREF(bound_exit);
    Py_XDECREF(type);
    return self;
}

static PyObject *find_phase(PyObject *name) {
    PyObject *found = PyDict_GetItemWithError(known, name);
    if (found != NULL)
        return Py_NewRef(found);
    if (!PyUnicode_Check(name)) { /* may have no hash either */
        argus_clear_exception();
        argus_report("phase(): a name is a str; %R counts as other", (PyObject *)Py_TYPE(name));
        return find_phase(other_name);
    }
    if (PyErr_Occurred())
        return NULL;
    if (PyDict_Size(known) >= REMEMBERED)
        return new_phase(name, phase_type);
    found = new_kept_phase(name);
    if (found != NULL && PyDict_SetItem(known, name, found) < 0)
        Py_CLEAR(found);
    return found;
}

PyObject *argus_get_phase(PyObject *name, PyObject *kind) {
    phase_object *found = (phase_object *)find_phase(name);
    if (found != NULL && kind != NULL && kind != Py_None && kind != found->given_kind)
        take_kind(found, kind);
    return (PyObject *)found;
}

/* Once said, it stays. */
static void take_data_dependent(phase_object *self, PyObject *given) {
    int truth = PyObject_IsTrue(given);
    if (truth < 0) {
        argus_clear_exception();
        argus_report("phase %R: data_dependent is True or False, not %R; it is left out", self->name, (PyObject *)Py_TYPE(given));
    }
    if (truth <= 0 || self->data_dependent)
        return;
    self->data_dependent = 1;
    if (argus_tracer.active && self->generation == argus_tracer.generation && !self->ref.overflowed) {
        argus_lock();
        argus_segment_flag_phase(argus_tracer.segment, self->ref.index, ARGUS_PHASE_DATA_DEPENDENT);
        argus_unlock();
    }
}

static PyObject *phase(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const char *const names[] = {"name", "kind", "data_dependent", NULL};
    PyObject *given[3] = {NULL, NULL, NULL};
    if (count == 1 && keywords == NULL)
        return find_phase(args[0]);
    /* The usual form once more, 10 ns faster than through argus_bind(). */
    if (count == 1 && PyTuple_Size(keywords) == 1 && PyTuple_GetItem(keywords, 0) == kind_word)
        return argus_get_phase(args[0], args[1]);
    if (argus_bind("phase", args, count, keywords, names, given) < 0)
        return NULL;
    if (given[0] == NULL)
        return PyErr_Format(PyExc_TypeError, "phase() needs a name");
    PyObject *found = argus_get_phase(given[0], given[1]);
    if (found != NULL && given[2] != NULL)
        take_data_dependent((phase_object *)found, given[2]);
    return found;
}

static PyObject *phase_reduce(PyObject *object, PyObject *Py_UNUSED(unused)) {
    phase_object *self = (phase_object *)object;
    const char *kind = self->explicit ? argus_kind_name(self->kind) : NULL;
    return Py_BuildValue("O(OzO)", self_function, self->name, kind, self->data_dependent ? Py_True : Py_False);
}

static PyObject *get_name(PyObject *object, void *Py_UNUSED(unused)) {
    return Py_NewRef(((phase_object *)object)->name);
}

static PyObject *get_kind(PyObject *object, void *Py_UNUSED(unused)) {
    return PyUnicode_FromString(argus_kind_name(((phase_object *)object)->kind));
}

static PyObject *get_data_dependent(PyObject *object, void *Py_UNUSED(unused)) {
    return PyBool_FromLong(((phase_object *)object)->data_dependent);
}

static void dealloc_phase(PyObject *object) {
    phase_object *self = (phase_object *)object;
    Py_XDECREF(self->name);
    Py_XDECREF(self->kept);
    Py_XDECREF(self->given_kind);
    argus_free_object(object);
}

static PyMethodDef methods[] = {
    {"__enter__", phase_enter, METH_NOARGS, NULL},
    {"__exit__", (PyCFunction)(void (*)(void))phase_exit, METH_FASTCALL, NULL},
    {"__reduce__", phase_reduce, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef attributes[] = {
    {"name", get_name, NULL, "The phase's name.", NULL},
    {"kind", get_kind, NULL, "compute, host, communication or mixed.", NULL},
    {"data_dependent", get_data_dependent, NULL, "Whether its time depends on the rank's data.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot slots[] = {
    {Py_tp_doc, "A named interval: `with phase: …`, or a decorator. Made by phase(); may be kept."},
    {Py_tp_dealloc, dealloc_phase},
    {Py_tp_call, argus_decorate},
    {Py_tp_methods, methods},
    {Py_tp_getset, attributes},
    {0, NULL},
};
static PyType_Spec spec = {"argus._native.Phase", sizeof(phase_object), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
static PyMethodDef functions[] = {
    {"phase", (PyCFunction)(void (*)(void))phase, METH_FASTCALL | METH_KEYWORDS,
     "phase(name, kind=None, data_dependent=False)\n--\n\n"
     "A named interval, as context manager or decorator.\n\n"
     "kind is 'compute', 'host', 'communication' or 'mixed' (waiting can't be told apart: it accuses nobody);\n"
     "None: by the name, else compute. data_dependent: its time depends on the rank's data (experts, packed\n"
     "sequences), so that without work units it accuses nobody. The object may be kept and used again, by any thread."},
    {NULL, NULL, 0, NULL},
};

int argus_add_phases(PyObject *module) {
    known = PyDict_New();
    other_name = PyUnicode_InternFromString("other");
    kind_word = PyUnicode_InternFromString("kind");
    if (known == NULL || other_name == NULL || kind_word == NULL || argus_make_type(&spec, &phase_type) < 0 || PyModule_AddFunctions(module, functions) < 0)
        return -1;
    self_function = PyObject_GetAttrString(module, "phase");
    return self_function == NULL ? -1 : PyModule_AddObject(module, "Phase", Py_NewRef((PyObject *)phase_type));
}
