/* The stack sampler and its categories for Python. */
#include "python.h"
#include "stack_sampler.h"

static const char capsule_name[] = "argus.stack_patterns";

static void free_patterns(PyObject *capsule) {
    argus_stack_patterns_free(PyCapsule_GetPointer(capsule, capsule_name));
}

static PyObject *read_patterns(PyObject *Py_UNUSED(module), PyObject *path) {
    char complaint[600];
    PyObject *encoded;
    if (!PyUnicode_FSConverter(path, &encoded))
        return NULL;
    struct argus_stack_patterns *patterns =
        argus_stack_patterns_read(PyBytes_AsString(encoded), complaint, sizeof complaint);
    Py_DECREF(encoded);
    PyObject *capsule = patterns == NULL ? Py_NewRef(Py_None) : PyCapsule_New(patterns, capsule_name, free_patterns);
    if (capsule == NULL)
        argus_stack_patterns_free(patterns);
    PyObject *text = capsule == NULL ? NULL : PyUnicode_DecodeUTF8(complaint, (Py_ssize_t)strlen(complaint), "replace");
    if (text == NULL) {
        Py_XDECREF(capsule);
        return NULL;
    }
    return Py_BuildValue("(NN)", capsule, text);
}

static PyObject *categories(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused)) {
    PyObject *list = PyTuple_New(ARGUS_STACK_CATEGORY_END);
    for (int i = 0; list != NULL && i < ARGUS_STACK_CATEGORY_END; i++) {
        PyObject *name = PyUnicode_FromString(argus_stack_category_name((enum argus_stack_category)i));
        if (name == NULL || PyTuple_SetItem(list, i, name) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *rules(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused)) {
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list != NULL && i < argus_stack_rule_count; i++) {
        PyObject *rule = Py_BuildValue("(ss)", argus_stack_category_name(argus_stack_rules[i].category),
                                       argus_stack_rules[i].patterns);
        if (rule == NULL || PyList_Append(list, rule) < 0)
            Py_CLEAR(list);
        Py_XDECREF(rule);
    }
    return list;
}

/* A list of names into matches; -1 with an exception. */
static int match_all(PyObject *names, const struct argus_stack_patterns *patterns,
                     struct argus_stack_match *matches, Py_ssize_t count) {
    for (Py_ssize_t i = 0; i < count; i++) {
        struct argus_text text;
        PyObject *name = PyList_GetItem(names, i), *keep = name == NULL ? NULL : argus_utf8(name, &text);
        if (keep == NULL)
            return -1;
        matches[i] = argus_stack_match(text.data, text.length, patterns);
        Py_DECREF(keep);
    }
    return 0;
}

static PyObject *category(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *names, *capsule = Py_None;
    const char *phase = "training";
    struct argus_stack_patterns *patterns = NULL;
    if (!PyArg_ParseTuple(args, "O!|sO:stack_category", &PyList_Type, &names, &phase, &capsule))
        return NULL;
    if (capsule != Py_None && (patterns = PyCapsule_GetPointer(capsule, capsule_name)) == NULL)
        return NULL;
    enum argus_stack_category of_phase = argus_stack_category_find(phase, strlen(phase));
    if (of_phase == ARGUS_STACK_NONE)
        return PyErr_Format(PyExc_ValueError, "no category '%s'", phase);
    Py_ssize_t count = PyList_Size(names);
    struct argus_stack_match *matches = PyMem_Malloc((size_t)(count + 1) * sizeof *matches);
    if (matches == NULL)
        return PyErr_NoMemory();
    PyObject *result = NULL;
    if (match_all(names, patterns, matches, count) == 0)
        result = PyUnicode_FromString(
            argus_stack_category_name(argus_stack_decide(matches, (size_t)count, of_phase)));
    PyMem_Free(matches);
    return result;
}

static PyObject *start(PyObject *Py_UNUSED(module), PyObject *args, PyObject *kwargs) {
    static char *names[] = {"segment", "thread", "hz", "patterns", NULL};
    PyObject *object, *path = Py_None, *encoded = NULL;
    unsigned long thread;
    double hz;
    char complaint[600] = "";
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "Okd|O", names, &object, &thread, &hz, &path))
        return NULL;
    if (!argus_is_segment(object) || !(hz >= 0.01 && hz <= 100))
        return PyErr_Format(PyExc_ValueError, "stacks_start() needs a Segment and 0.01 to 100 samples a second");
    struct argus_segment *segment = argus_open_segment(object);
    if (segment == NULL || (path != Py_None && !PyUnicode_FSConverter(path, &encoded)))
        return NULL;
    struct argus_stack_patterns *patterns =
        encoded == NULL ? NULL : argus_stack_patterns_read(PyBytes_AsString(encoded), complaint, sizeof complaint);
    Py_XDECREF(encoded);
    if (argus_stacks_start(segment, thread, (uint64_t)(1e9 / hz), patterns) < 0) {
        argus_stack_patterns_free(patterns);
        return NULL;
    }
    return PyUnicode_DecodeUTF8(complaint, (Py_ssize_t)strlen(complaint), "replace");
}

static PyObject *stop(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused)) {
    argus_stacks_stop();
    Py_RETURN_NONE;
}

static PyObject *status(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused)) {
    struct argus_stacks_status now = argus_stacks_status();
    return Py_BuildValue("{sNsKsKsKsK}", "active", PyBool_FromLong(now.active), "interval_ns",
                         (unsigned long long)now.interval, "samples", (unsigned long long)now.samples,
                         "failures", (unsigned long long)now.failures, "cost_ns", (unsigned long long)now.cost);
}

static PyMethodDef functions[] = {
    {"read_stack_patterns", read_patterns, METH_O,
     "read_stack_patterns(path)\n--\n\n(patterns or None, what is wrong with the file or '')."},
    {"stack_categories", categories, METH_NOARGS, "stack_categories()\n--\n\nNames of the categories."},
    {"stack_rules", rules, METH_NOARGS,
     "stack_rules()\n--\n\nThe built-in rules, (category, patterns), in the order in which they decide."},
    {"stack_category", category, METH_VARARGS,
     "stack_category(names, phase='training', patterns=None)\n--\n\n"
     "Category of a stack, a list of functions from the innermost outwards; phase: what the open phase says."},
    {"stacks_start", (PyCFunction)(void (*)(void))start, METH_VARARGS | METH_KEYWORDS,
     "stacks_start(segment, thread, hz, patterns=None)\n--\n\n"
     "Samples stacks into the segment; what is wrong with the file of patterns, or ''."},
    {"stacks_stop", stop, METH_NOARGS, "stacks_stop()\n--\n\nStops sampling, and waits for its thread."},
    {"stacks_status", status, METH_NOARGS, "stacks_status()\n--\n\nWhat the sampler has done, as a dict."},
    {NULL, NULL, 0, NULL},
};

int argus_add_stacks(PyObject *module) { return PyModule_AddFunctions(module, functions); }
