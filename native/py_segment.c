/* argus._native.Segment */
#include <errno.h>
#include <string.h>

#include "lock.h"
#include "python.h"
#include "stack_sampler.h"
#include "tracer.h"

typedef struct segment_object {
    PyObject_HEAD
    struct argus_segment *segment; /* NULL: closed */
    struct argus_identity identity;
    struct segment_object *next; /* in own */
} segment_object;

static PyTypeObject *segment_type;
static segment_object *own; /* open and file-backed, borrowed */

int argus_is_segment(PyObject *object) { return PyObject_TypeCheck(object, segment_type); }

struct argus_segment *argus_open_segment(PyObject *object) {
    struct argus_segment *segment = ((segment_object *)object)->segment;
    if (segment == NULL)
        PyErr_SetString(PyExc_ValueError, "the segment is closed");
    return segment;
}

/* ---- identity ---- */

/* Reads the keywords of the identity; what is not given stays. */
static int parse_identity(PyObject *args, PyObject *kwargs, struct argus_identity *identity, PyObject **path,
                          PyObject **created, struct argus_flight_sizes *flight, int *stacks) {
    static char *names[] = {"path",    "run_id",  "rank", "role", "node", "local_rank", "world_size",
                            "attempt", "dp",      "tp",   "pp",   "cp",   "ep",         "gpu_uuid",
                            "pci_bus_id", "created", "flight_events", "flight_kernels",
                            "stacks", NULL};
    PyObject *run_id = NULL, *role = NULL, *node = NULL, *gpu_uuid = NULL, *pci_bus_id = NULL;
    struct argus_identity *i = identity;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O$UO&UUO&O&O&O&O&O&O&O&UUOIIp", names, path, &run_id,
                                     argus_optional_int, &i->rank, &role, &node, argus_optional_int, &i->local_rank,
                                     argus_optional_int, &i->world_size, argus_optional_int, &i->attempt, argus_optional_int,
                                     &i->dp, argus_optional_int, &i->tp, argus_optional_int, &i->pp, argus_optional_int, &i->cp,
                                     argus_optional_int, &i->ep, &gpu_uuid, &pci_bus_id, created,
                                     &flight->events[ARGUS_FLIGHT_TRACER], &flight->events[ARGUS_FLIGHT_KERNEL], stacks))
        return -1;
    const struct {
        PyObject *value;
        char *field;
        size_t size;
    } texts[] = {
        {run_id, i->run_id, sizeof i->run_id},       {role, i->role, sizeof i->role},
        {node, i->node, sizeof i->node},             {gpu_uuid, i->gpu_uuid, sizeof i->gpu_uuid},
        {pci_bus_id, i->pci_bus_id, sizeof i->pci_bus_id},
    };
    for (size_t k = 0; k < sizeof texts / sizeof *texts; k++) {
        struct argus_text text;
        if (texts[k].value == NULL)
            continue;
        PyObject *keep = argus_utf8(texts[k].value, &text);
        if (keep == NULL)
            return -1;
        argus_copy_text(texts[k].field, texts[k].size, text.data, text.length);
        Py_DECREF(keep);
    }
    return 0;
}

/* ---- life ---- */

static PyObject *new_segment(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *path = NULL, *created = Py_None, *encoded = NULL;
    uint64_t begin = 0;
    struct argus_flight_sizes flight = {{0, 0}};
    int stacks = 0;
    struct argus_identity identity = {.rank = -1, .local_rank = -1, .world_size = -1, .attempt = 0, .dp = -1,
                                      .tp = -1, .pp = -1, .cp = -1, .ep = -1, .role = "pp0"};
    if (parse_identity(args, kwargs, &identity, &path, &created, &flight, &stacks) < 0)
        return NULL;
    if (path == NULL || identity.run_id[0] == 0 || identity.rank < 0) {
        PyErr_SetString(PyExc_TypeError, "Segment needs path (None: in memory), run_id= and rank=");
        return NULL;
    }
    if (created != Py_None && argus_to_unsigned(created, &begin) < 0)
        return NULL;
    if (path != Py_None && !PyUnicode_FSConverter(path, &encoded))
        return NULL;

    segment_object *self = (segment_object *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    struct argus_segment *segment = PyMem_Malloc(sizeof *segment);
    int failure = ENOMEM;
    if (self != NULL && segment != NULL)
        failure = argus_segment_create(segment, encoded ? PyBytes_AsString(encoded) : NULL, begin, flight, stacks);
    Py_XDECREF(encoded);
    if (failure != 0) {
        PyMem_Free(segment);
        Py_XDECREF(self);
        errno = failure;
        return path == Py_None ? PyErr_SetFromErrno(PyExc_OSError)
                               : PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, path);
    }
    self->segment = segment;
    self->identity = identity;
    argus_segment_identify(segment, &identity);
    if (segment->fd >= 0) {
        self->next = own;
        own = self;
    }
    return (PyObject *)self;
}

static void close_segment(segment_object *self, uint64_t state) {
    if (self->segment == NULL)
        return;
    argus_stacks_detach(self->segment);
    argus_lock();
    argus_tracer_release(self->segment);
    argus_unlock();
    for (segment_object **link = &own; *link != NULL; link = &(*link)->next)
        if (*link == self) {
            *link = self->next;
            break;
        }
    argus_segment_close(self->segment, state);
    PyMem_Free(self->segment);
    self->segment = NULL;
}

static void dealloc_segment(PyObject *object) {
    close_segment((segment_object *)object, 0);
    argus_free_object(object);
}

static PyObject *segment_close(PyObject *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"state", NULL};
    const char *state = NULL;
    uint64_t value = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|z", names, &state))
        return NULL;
    if (state != NULL) {
        if (strcmp(state, "ended") == 0)
            value = ARGUS_STATE_ENDED;
        else if (strcmp(state, "failed") == 0)
            value = ARGUS_STATE_FAILED;
        else
            return PyErr_Format(PyExc_ValueError, "state is 'ended', 'failed' or None, not '%s'", state);
    }
    close_segment((segment_object *)self, value);
    Py_RETURN_NONE;
}

static PyObject *own_segments(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused)) {
    PyObject *list = PyList_New(0);
    for (segment_object *each = own; list != NULL && each != NULL; each = each->next)
        if (argus_segment_writable(each->segment) && PyList_Append(list, (PyObject *)each) < 0)
            Py_CLEAR(list);
    return list;
}

/* ---- records ---- */

static int to_index(PyObject *object, unsigned used, int other_allowed, unsigned *index) {
    long value = PyLong_AsLong(object);
    if (value == -1 && PyErr_Occurred())
        return -1;
    if (value < 0 || (value >= (long)used && !(other_allowed && value == ARGUS_OTHER_PHASE))) {
        PyErr_Format(PyExc_IndexError, "no phase or collective has index %ld", value);
        return -1;
    }
    *index = (unsigned)value;
    return 0;
}

static PyObject *segment_identify(PyObject *self, PyObject *args, PyObject *kwargs) {
    PyObject *path = NULL, *created = NULL;
    struct argus_flight_sizes flight = {{UINT32_MAX, UINT32_MAX}};
    int stacks = -1;
    struct argus_segment *segment = argus_open_segment(self);
    struct argus_identity identity = ((segment_object *)self)->identity;
    if (segment == NULL || parse_identity(args, kwargs, &identity, &path, &created, &flight, &stacks) < 0)
        return NULL;
    if (path != NULL || created != NULL || flight.events[0] != UINT32_MAX || flight.events[1] != UINT32_MAX || stacks != -1)
        return PyErr_Format(PyExc_TypeError, "a segment's path, creation and what it has room for can't be changed");
    ((segment_object *)self)->identity = identity;
    argus_segment_identify(segment, &identity);
    Py_RETURN_NONE;
}

static PyObject *segment_phase(PyObject *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"name", "kind", NULL};
    PyObject *name, *kind, *keep_name, *keep_kind;
    struct argus_text name_text, kind_text;
    uint64_t value;
    struct argus_segment *segment = argus_open_segment(self);
    if (segment == NULL || !PyArg_ParseTupleAndKeywords(args, kwargs, "UU", names, &name, &kind))
        return NULL;
    if ((keep_kind = argus_utf8(kind, &kind_text)) == NULL)
        return NULL;
    int failure = argus_kind_from_text(kind_text, &value);
    Py_DECREF(keep_kind);
    if (failure)
        return PyErr_Format(PyExc_ValueError, "kind is compute, host, communication or mixed, not %R", kind);
    if ((keep_name = argus_utf8(name, &name_text)) == NULL)
        return NULL;
    unsigned index = argus_segment_phase(segment, name_text, value);
    Py_DECREF(keep_name);
    return PyLong_FromUnsignedLong(index);
}

static PyObject *segment_data_dependent(PyObject *self, PyObject *object) {
    unsigned index;
    struct argus_segment *segment = argus_open_segment(self);
    if (segment == NULL || to_index(object, segment->phases_used, 1, &index) < 0)
        return NULL;
    argus_segment_flag_phase(segment, index, ARGUS_PHASE_DATA_DEPENDENT);
    Py_RETURN_NONE;
}

static PyObject *segment_collective(PyObject *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"op", "group", "group_id", "members", "nodes", NULL};
    PyObject *given[3], *keep[3] = {NULL, NULL, NULL}, *result = NULL;
    struct argus_text text[3];
    int32_t members = ARGUS_UNKNOWN, nodes = ARGUS_UNKNOWN;
    struct argus_segment *segment = argus_open_segment(self);
    if (segment == NULL || !PyArg_ParseTupleAndKeywords(args, kwargs, "UUU|O&O&", names, &given[0], &given[1],
                                                        &given[2], argus_optional_int, &members, argus_optional_int, &nodes))
        return NULL;
    int ready = 1;
    for (int i = 0; i < 3 && ready; i++)
        ready = (keep[i] = argus_utf8(given[i], &text[i])) != NULL;
    if (ready)
        result = PyLong_FromLong(argus_segment_collective(segment, text[0], text[1], text[2], members, nodes));
    for (int i = 0; i < 3; i++)
        Py_XDECREF(keep[i]);
    return result;
}

static PyObject *segment_observe_phase(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    unsigned index;
    uint64_t ns;
    struct argus_segment *segment = argus_open_segment(self);
    if (segment == NULL || argus_check_count("observe_phase", count, 2, 2) < 0 ||
        to_index(args[0], segment->phases_used, 1, &index) < 0 || argus_to_unsigned(args[1], &ns) < 0)
        return NULL;
    segment->phase_ns[index] += ns;
    argus_segment_count_phase(segment, index, ns);
    Py_RETURN_NONE;
}

static PyObject *segment_observe_collective(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    unsigned index;
    uint64_t ns, bytes = 0;
    struct argus_segment *segment = argus_open_segment(self);
    if (segment == NULL || argus_check_count("observe_collective", count, 2, 3) < 0 ||
        to_index(args[0], segment->collectives_used, 0, &index) < 0 || argus_to_unsigned(args[1], &ns) < 0 ||
        (count == 3 && argus_to_unsigned(args[2], &bytes) < 0))
        return NULL;
    argus_segment_count_collective(segment, index, ns, bytes);
    argus_segment_complete(segment, index, argus_segment_enqueue(segment, index));
    Py_RETURN_NONE;
}

static PyObject *segment_end_iteration(PyObject *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"iteration", "end_ns", "wall_ns", "busy_ns", NULL};
    PyObject *given[4] = {NULL, NULL, NULL, Py_None};
    uint64_t value[4] = {0, 0, 0, UINT64_MAX};
    struct argus_segment *segment = argus_open_segment(self);
    if (segment == NULL || !PyArg_ParseTupleAndKeywords(args, kwargs, "OOO|O", names, &given[0], &given[1],
                                                        &given[2], &given[3]))
        return NULL;
    for (int i = 0; i < 4; i++)
        if (given[i] != Py_None && argus_to_unsigned(given[i], &value[i]) < 0)
            return NULL;
    argus_segment_end_iteration(segment, value[0], value[1], value[2], value[3]);
    Py_RETURN_NONE;
}

static PyObject *segment_open_phase(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    unsigned index;
    uint64_t begin = 0;
    struct argus_segment *segment = argus_open_segment(self);
    if (segment == NULL || argus_check_count("open_phase", count, 1, 2) < 0)
        return NULL;
    if (PyLong_AsLong(args[0]) == -1) {
        if (PyErr_Occurred())
            return NULL;
        argus_segment_open_phase(segment, -1, 0);
        Py_RETURN_NONE;
    }
    if (to_index(args[0], segment->phases_used, 1, &index) < 0 ||
        (count == 2 && argus_to_unsigned(args[1], &begin) < 0))
        return NULL;
    argus_segment_open_phase(segment, (int)index, begin);
    Py_RETURN_NONE;
}

static PyObject *segment_pause(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    struct argus_text kind;
    uint64_t begin = 0;
    struct argus_segment *segment = argus_open_segment(self);
    if (segment == NULL || argus_check_count("pause", count, 1, 2) < 0)
        return NULL;
    if (args[0] == Py_None) {
        argus_segment_resume(segment);
        Py_RETURN_NONE;
    }
    if (count == 2 && argus_to_unsigned(args[1], &begin) < 0)
        return NULL;
    PyObject *keep = argus_utf8(args[0], &kind);
    if (keep == NULL)
        return NULL;
    argus_segment_pause(segment, kind, begin);
    Py_DECREF(keep);
    Py_RETURN_NONE;
}

static PyObject *segment_sequence(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    unsigned index;
    uint64_t enqueued, completed;
    struct argus_segment *segment = argus_open_segment(self);
    if (segment == NULL || argus_check_count("sequence", count, 3, 3) < 0 ||
        to_index(args[0], segment->collectives_used, 0, &index) < 0 || argus_to_unsigned(args[1], &enqueued) < 0 ||
        argus_to_unsigned(args[2], &completed) < 0)
        return NULL;
    argus_segment_sequence(segment, index, enqueued, completed);
    Py_RETURN_NONE;
}

static PyObject *segment_work(PyObject *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"unit", "phase", "amount", NULL};
    PyObject *unit, *phase, *keep_unit, *keep_phase;
    struct argus_text unit_text, phase_text;
    double amount;
    struct argus_segment *segment = argus_open_segment(self);
    if (segment == NULL || !PyArg_ParseTupleAndKeywords(args, kwargs, "UUd", names, &unit, &phase, &amount))
        return NULL;
    if (!(amount >= 0 && amount < 1e300))
        return PyErr_Format(PyExc_ValueError, "an amount of work is a number >= 0");
    if ((keep_unit = argus_utf8(unit, &unit_text)) == NULL)
        return NULL;
    if ((keep_phase = argus_utf8(phase, &phase_text)) != NULL &&
        argus_segment_work(segment, unit_text, phase_text, amount) < 0)
        segment->dropped++;
    Py_DECREF(keep_unit);
    Py_XDECREF(keep_phase);
    return keep_phase == NULL ? NULL : Py_NewRef(Py_None);
}

static PyObject *segment_snapshot(PyObject *self, PyObject *Py_UNUSED(unused)) {
    struct argus_segment *segment = argus_open_segment(self);
    if (segment == NULL)
        return NULL;
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)segment->bytes);
    if (bytes != NULL) {
        argus_lock();
        memcpy(PyBytes_AsString(bytes), segment->base, segment->bytes);
        argus_unlock();
    }
    return bytes;
}

/* ---- attributes ---- */

static PyObject *get_path(PyObject *self, void *Py_UNUSED(unused)) {
    const struct argus_segment *segment = ((segment_object *)self)->segment;
    return segment == NULL || segment->path == NULL ? Py_NewRef(Py_None) : PyUnicode_DecodeFSDefault(segment->path);
}

static PyObject *get_inode(PyObject *self, void *Py_UNUSED(unused)) {
    const struct argus_segment *segment = ((segment_object *)self)->segment;
    if (segment == NULL || segment->fd < 0)
        Py_RETURN_NONE;
    return Py_BuildValue("(KK)", (unsigned long long)segment->device, (unsigned long long)segment->inode);
}

static PyObject *get_closed(PyObject *self, void *Py_UNUSED(unused)) {
    return PyBool_FromLong(((segment_object *)self)->segment == NULL);
}

static PyObject *get_lost(PyObject *self, void *Py_UNUSED(unused)) {
    const struct argus_segment *segment = ((segment_object *)self)->segment;
    return PyBool_FromLong(segment != NULL && segment->lost);
}

static PyObject *get_dropped(PyObject *self, void *Py_UNUSED(unused)) {
    const struct argus_segment *segment = ((segment_object *)self)->segment;
    return PyLong_FromUnsignedLongLong(segment == NULL ? 0 : segment->dropped);
}

#define WORDS METH_VARARGS | METH_KEYWORDS
#define METHOD(name) {#name, (PyCFunction)(void (*)(void))segment_##name
static PyMethodDef methods[] = {
    METHOD(phase), WORDS, "phase(name, kind)\n--\n\nIndex of the phase; OTHER_PHASE when all are taken."},
    METHOD(data_dependent), METH_O,
     "data_dependent(index)\n--\n\nSays that a phase's time depends on the rank's data."},
    METHOD(collective), WORDS,
     "collective(op, group, group_id, members=-1, nodes=-1)\n--\n\n"
     "Index of the collective; -1 when all are taken."},
    METHOD(observe_phase), METH_FASTCALL,
     "observe_phase(index, duration_ns)\n--\n\n"
     "Counts an occurrence, and adds it to the iteration being recorded."},
    METHOD(observe_collective), METH_FASTCALL,
     "observe_collective(index, duration_ns, bytes=0)\n--\n\n"
     "Counts an occurrence of a collective and its sequence number; its phase is observed apart."},
    METHOD(end_iteration), WORDS,
     "end_iteration(iteration, end_ns, wall_ns, busy_ns=None)\n--\n\n"
     "Writes the iteration; busy_ns None: the sum of its compute and host phases."},
    METHOD(open_phase), METH_FASTCALL,
     "open_phase(index, begin_ns=0)\n--\n\nSays which phase is open; index -1: none."},
    METHOD(pause), METH_FASTCALL, "pause(kind, begin_ns=0)\n--\n\nDeclares a pause; kind None: it is over."},
    METHOD(sequence), METH_FASTCALL,
     "sequence(index, enqueued, completed)\n--\n\nSets the sequence numbers of the collective's communicator."},
    METHOD(work), WORDS, "work(unit, phase, amount)\n--\n\nAdds units of work; phase '': the iteration's own."},
    METHOD(identify), WORDS, "identify(**fields)\n--\n\nChanges fields of the identity."},
    METHOD(snapshot), METH_NOARGS, "snapshot()\n--\n\nThe segment's bytes."},
    METHOD(close), WORDS,
     "close(state=None)\n--\n\nGives the segment back: 'ended' removes the file, 'failed' and None leave it."},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef attributes[] = {
    {"path", get_path, NULL, "The file, or None.", NULL},
    {"inode", get_inode, NULL, "(device, inode) of the file, or None.", NULL},
    {"closed", get_closed, NULL, "Whether close() was called.", NULL},
    {"lost", get_lost, NULL, "Whether the file was truncated under the mapping.", NULL},
    {"dropped", get_dropped, NULL, "Phases, collectives and work units that found no record.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot slots[] = {
    {Py_tp_doc, "The shared file (or, with path None, memory) to which one rank writes.\n\n"
                "Raises OSError when it can't be had. Times are nanoseconds."},
    {Py_tp_new, new_segment},
    {Py_tp_dealloc, dealloc_segment},
    {Py_tp_methods, methods},
    {Py_tp_getset, attributes},
    {0, NULL},
};
static PyType_Spec spec = {"argus._native.Segment", sizeof(segment_object), 0, Py_TPFLAGS_DEFAULT, slots};
static PyMethodDef functions[] = {
    {"own_segments", own_segments, METH_NOARGS,
     "own_segments()\n--\n\nThis process's open segments that are files: read them through snapshot() only."},
    {NULL, NULL, 0, NULL},
};

int argus_add_segment(PyObject *module) {
    if (argus_make_type(&spec, &segment_type) < 0 || PyModule_AddFunctions(module, functions) < 0)
        return -1;
    return PyModule_AddObject(module, "Segment", Py_NewRef((PyObject *)segment_type));
}
