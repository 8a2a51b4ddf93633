/* collective(): communication phases with operation, communicator and payload. */
#include "lock.h"
#include "python.h"
#include "tracer.h"

#define REMEMBERED 1024

/* What all calls with the same operation and communicator share. */
typedef struct {
    PyObject_HEAD
    PyObject *op, *group, *group_id, *peer; /* group_id, peer: may be None */
    PyObject *phase;
    int64_t members, nodes;
    unsigned generation, coordinates; /* of which the indices are valid */
    int index;                        /* -1: no record was left */
    unsigned phase_index;
} channel_object;

typedef struct {
    PyObject_HEAD
    channel_object *channel;
    uint64_t bytes, sequence; /* sequence 0: counted here */
    unsigned generation; /* of the last enter, and what it began */
    int index;
    unsigned phase_index;
} collective_object;

static PyTypeObject *channel_type, *collective_type;
static PyObject *known; /* {(op, group, group_id, peer): channel} */

/* (group_id, members, nodes) as the coordinates say; what the caller gave stands. */
static PyObject *ask_resolver(channel_object *self, int64_t *members, int64_t *nodes) {
    PyObject *answer = NULL, *group_id = NULL;
    long long found_members = ARGUS_UNKNOWN, found_nodes = ARGUS_UNKNOWN;
    if (argus_resolver() != NULL)
        answer = PyObject_CallFunctionObjArgs(argus_resolver(), self->group, self->peer, NULL);
    if (answer != NULL && PyArg_ParseTuple(answer, "ULL", &group_id, &found_members, &found_nodes)) {
        Py_INCREF(group_id);
        if (*members < 0)
            *members = found_members;
        if (*nodes < 0)
            *nodes = found_nodes;
    } else {
        argus_clear_exception();
        group_id = PyUnicode_FromFormat("%U-unknown", self->group);
    }
    Py_XDECREF(answer);
    return group_id;
}

static int open_record(channel_object *self, PyObject *group_id, int64_t members, int64_t nodes) {
    PyObject *const given[3] = {self->op, self->group, group_id};
    PyObject *kept[3] = {NULL, NULL, NULL};
    struct argus_text text[3];
    int index = -1, ready = 1;
    for (int i = 0; i < 3 && ready; i++)
        ready = (kept[i] = argus_utf8(given[i], &text[i])) != NULL;
    if (ready) {
        argus_lock();
        index = argus_segment_collective(argus_tracer.segment, text[0], text[1], text[2], members, nodes);
        argus_unlock();
    }
    for (int i = 0; i < 3; i++)
        Py_XDECREF(kept[i]);
    return index;
}

/* Never raises: a communicator that can't be named leaves its phase.  Python
 * code runs in between, so other threads may come here at the same time, and
 * the tracer may stop. */
static void resolve(channel_object *self) {
    int64_t members = self->members, nodes = self->nodes;
    unsigned generation = argus_tracer.generation, coordinates = argus_tracer.coordinates;
    PyObject *group_id = self->group_id != Py_None ? Py_NewRef(self->group_id)
                                                   : ask_resolver(self, &members, &nodes);
    if (argus_tracer.active && argus_tracer.generation == generation) {
        self->index = group_id == NULL ? -1 : open_record(self, group_id, members, nodes);
        self->phase_index = argus_phase_resolve(self->phase).index;
        self->generation = generation;
        self->coordinates = coordinates;
    }
    Py_XDECREF(group_id);
    PyErr_Clear();
}

/* Under the lock.  A library may have counted further already, where others than
 * our caller enqueue: then that number stands. */
static void begin_numbered(const collective_object *self) {
    struct argus_segment *segment = argus_tracer.segment;
    unsigned index = (unsigned)self->index;
    int numbered = self->index >= 0 && self->sequence != 0;
    uint64_t before = numbered ? argus_segment_renumber(segment, index, self->sequence - 1) : 0;
    argus_tracer_begin_collective(self->phase_index, self->index, self->bytes);
    if (numbered && before > self->sequence)
        argus_segment_renumber(segment, index, before);
}

static PyObject *collective_enter(PyObject *object, PyObject *Py_UNUSED(unused)) {
    collective_object *self = (collective_object *)object;
    channel_object *channel = self->channel;
    self->generation = 0;
    if (argus_tracer.active && (channel->generation != argus_tracer.generation ||
                                channel->coordinates != argus_tracer.coordinates))
        resolve(channel);
    if (argus_tracer.active && channel->generation == argus_tracer.generation) {
        self->generation = argus_tracer.generation;
        self->index = channel->index;
        self->phase_index = channel->phase_index;
        argus_lock();
        if (self->index < 0)
            argus_tracer_drop();
        begin_numbered(self);
        argus_unlock();
    }
    return Py_NewRef(object);
}

static PyObject *collective_exit(PyObject *object, PyObject *const *Py_UNUSED(args), Py_ssize_t Py_UNUSED(count)) {
    const collective_object *self = (collective_object *)object;
    if (argus_tracer.active && self->generation == argus_tracer.generation) {
        argus_lock();
        argus_tracer_end_collective(self->phase_index, self->index);
        argus_unlock();
    }
    Py_RETURN_NONE;
}

enum { OP, GROUP, GROUP_ID, BYTES, MEMBERS, NODES, PEER, SEQUENCE, ARGUMENTS };
static const char *const argument_names[] = {"op", "group", "group_id", "bytes", "members", "nodes", "peer", "sequence",
                                             NULL};

/* What one of the calls says of the communicator stands for all; the first one that says it. */
static void take_size(channel_object *self, PyObject *const *given) {
    uint64_t count;
    if (self->members < 0 && argus_take_count("collective(members=)", given[MEMBERS], &count)) {
        self->members = (int64_t)count;
        self->generation = 0; /* to be resolved again */
    }
    if (self->nodes < 0 && argus_take_count("collective(nodes=)", given[NODES], &count)) {
        self->nodes = (int64_t)count;
        self->generation = 0;
    }
}

static PyObject *new_channel(PyObject *const *given) {
    static PyObject *communication;
    if (!PyUnicode_Check(given[OP]) || !PyUnicode_Check(given[GROUP]) || (given[GROUP_ID] != Py_None && !PyUnicode_Check(given[GROUP_ID])))
        return PyErr_Format(PyExc_TypeError, "op, group and group_id are str");
    if (communication == NULL && (communication = PyUnicode_FromString("communication")) == NULL)
        return NULL;
    PyObject *phase = argus_get_phase(given[OP], communication);
    if (phase == NULL)
        return NULL;
    channel_object *self = PyObject_New(channel_object, channel_type);
    if (self == NULL) {
        Py_DECREF(phase);
        return NULL;
    }
    self->op = Py_NewRef(given[OP]);
    self->group = Py_NewRef(given[GROUP]);
    self->group_id = Py_NewRef(given[GROUP_ID]);
    self->peer = Py_NewRef(given[PEER]);
    self->phase = phase;
    self->members = self->nodes = ARGUS_UNKNOWN;
    self->generation = self->coordinates = 0;
    self->index = -1;
    self->phase_index = ARGUS_OTHER_PHASE;
    return (PyObject *)self;
}

static PyObject *find_channel(PyObject *const *given) {
    PyObject *key = PyTuple_Pack(4, given[OP], given[GROUP], given[GROUP_ID], given[PEER]);
    if (key == NULL)
        return NULL;
    PyObject *found = PyDict_GetItemWithError(known, key);
    Py_XINCREF(found);
    if (found == NULL && !PyErr_Occurred()) {
        found = new_channel(given);
        if (found != NULL && PyDict_Size(known) < REMEMBERED && PyDict_SetItem(known, key, found) < 0)
            Py_CLEAR(found);
    }
    Py_DECREF(key);
    return found;
}

static PyObject *collective(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count,
                            PyObject *keywords) {
    static PyObject *world, *other;
    PyObject *given[ARGUMENTS] = {NULL};
    uint64_t bytes = 0, sequence = 0;
    if ((world == NULL && (world = PyUnicode_InternFromString("world")) == NULL) ||
        (other == NULL && (other = PyUnicode_InternFromString("other")) == NULL))
        return NULL;
    given[GROUP] = world;
    given[GROUP_ID] = given[PEER] = Py_None;
    if (argus_bind("collective", args, count, keywords, argument_names, given) < 0)
        return NULL;
    argus_take_count("collective(bytes=)", given[BYTES], &bytes);
    argus_take_count("collective(sequence=)", given[SEQUENCE], &sequence);
    if (given[OP] == NULL)
        return PyErr_Format(PyExc_TypeError, "collective() needs an operation");
    PyObject *channel = find_channel(given);
    if (channel == NULL && PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear();
        argus_report("collective(): op, group and group_id are str, peer is a rank; what is not counts as other");
        PyObject *const instead[ARGUMENTS] = {other, world, Py_None, NULL, NULL, NULL, Py_None, NULL};
        channel = find_channel(instead);
    }
    if (channel == NULL)
        return NULL;
    if (given[MEMBERS] != NULL || given[NODES] != NULL)
        take_size((channel_object *)channel, given);
    collective_object *self = PyObject_New(collective_object, collective_type);
    if (self == NULL) {
        Py_DECREF(channel);
        return NULL;
    }
    self->channel = (channel_object *)channel;
    self->bytes = bytes;
    self->sequence = sequence;
    self->generation = 0;
    return (PyObject *)self;
}

static void dealloc_channel(PyObject *object) {
    channel_object *self = (channel_object *)object;
    Py_DECREF(self->op);
    Py_DECREF(self->group);
    Py_DECREF(self->group_id);
    Py_DECREF(self->peer);
    Py_DECREF(self->phase);
    argus_free_object(object);
}

static void dealloc_collective(PyObject *object) {
    Py_DECREF(((collective_object *)object)->channel);
    argus_free_object(object);
}

static PyMethodDef methods[] = {
    {"__enter__", collective_enter, METH_NOARGS, NULL},
    {"__exit__", (PyCFunction)(void (*)(void))collective_exit, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot channel_slots[] = {{Py_tp_dealloc, dealloc_channel}, {0, NULL}};
static PyType_Slot collective_slots[] = {
    {Py_tp_doc, "One collective: `with collective(…): …`, or a decorator."},
    {Py_tp_dealloc, dealloc_collective},
    {Py_tp_call, argus_decorate},
    {Py_tp_methods, methods},
    {0, NULL},
};
static PyType_Spec channel_spec = {"argus._native.Channel", sizeof(channel_object), 0,
                                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, channel_slots};
static PyType_Spec collective_spec = {"argus._native.Collective", sizeof(collective_object), 0,
                                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, collective_slots};
static PyMethodDef functions[] = {
    {"collective", (PyCFunction)(void (*)(void))collective, METH_FASTCALL | METH_KEYWORDS,
     "collective(op, group='world', group_id=None, bytes=0, members=None, nodes=None, peer=None, sequence=None)\n--\n\n"
     "A communication phase named op, and what is known of the collective: context manager or decorator.\n\n"
     "group is dp, tp, pp, ep, edp, cp or world; group_id None: <group>-<lowest rank of this rank's group>,\n"
     "from the parallel coordinates, or <group>-<low>-<high> of this rank and `peer` (send, recv).\n"
     "bytes is the payload; members and nodes are how many ranks and nodes take part.\n"
     "sequence is the operation's number in its communicator, from 1; None: counted here."},
    {NULL, NULL, 0, NULL},
};

int argus_add_collectives(PyObject *module) {
    known = PyDict_New();
    if (known == NULL || argus_make_type(&channel_spec, &channel_type) < 0 ||
        argus_make_type(&collective_spec, &collective_type) < 0 || PyModule_AddFunctions(module, functions) < 0)
        return -1;
    return PyModule_AddObject(module, "Collective", Py_NewRef((PyObject *)collective_type));
}
