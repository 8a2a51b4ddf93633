/* The rules for NVTX ranges in Python, and what came in. */
#include <stdlib.h>
#include <string.h>

#include "events.h"
#include "lock.h"
#include "python.h"

static const char capsule_name[] = "argus.nvtx_rules";

static void free_rules(PyObject *capsule) { free(PyCapsule_GetPointer(capsule, capsule_name)); }

static PyObject *nvtx_rules(PyObject *Py_UNUSED(module), PyObject *args) {
    char complaint[1024];
    PyObject *path = Py_None, *bytes = NULL;
    if (!PyArg_ParseTuple(args, "|O:nvtx_rules", &path) ||
        (path != Py_None && !PyUnicode_FSConverter(path, &bytes)))
        return NULL;
    struct argus_nvtx_rules *rules =
        argus_nvtx_rules_read(bytes == NULL ? NULL : PyBytes_AsString(bytes), complaint, sizeof complaint);
    Py_XDECREF(bytes);
    if (rules == NULL)
        return PyErr_NoMemory();
    PyObject *capsule = PyCapsule_New(rules, capsule_name, free_rules);
    if (capsule == NULL) {
        free(rules);
        return NULL;
    }
    PyObject *text = PyUnicode_DecodeUTF8(complaint, (Py_ssize_t)strlen(complaint), "replace");
    PyObject *result = text == NULL ? NULL : PyTuple_Pack(2, capsule, text);
    Py_DECREF(capsule);
    Py_XDECREF(text);
    return result;
}

/* As it is written in a file. */
static PyObject *target_text(const struct argus_nvtx_rule *rule) {
    if (rule->type == ARGUS_NVTX_IGNORE)
        return PyUnicode_FromString("ignore");
    if (rule->type == ARGUS_NVTX_ITERATION)
        return PyUnicode_FromString("iteration");
    PyObject *name = PyUnicode_DecodeUTF8(rule->name, (Py_ssize_t)rule->length, "replace"), *text = NULL;
    if (name != NULL && rule->type == ARGUS_NVTX_PAUSE)
        text = PyUnicode_FromFormat("pause:%U", name);
    else if (name != NULL)
        text = PyUnicode_FromFormat("%U:%s%s", name, argus_kind_name(rule->kind), rule->last ? "+" : "");
    Py_XDECREF(name);
    return text;
}

static PyObject *nvtx_target(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *capsule, *name, *domain = NULL, *kept_domain = NULL;
    struct argus_text text, domain_text = {"", 0};
    if (!PyArg_ParseTuple(args, "OU|U:nvtx_target", &capsule, &name, &domain))
        return NULL;
    const struct argus_nvtx_rules *rules = PyCapsule_GetPointer(capsule, capsule_name);
    PyObject *kept = rules == NULL ? NULL : argus_utf8(name, &text);
    if (kept == NULL || (domain != NULL && (kept_domain = argus_utf8(domain, &domain_text)) == NULL)) {
        Py_XDECREF(kept);
        return NULL;
    }
    int rule = argus_nvtx_find(rules, domain_text.data, domain_text.length, text.data,
                               argus_nvtx_name_length(text.data));
    Py_DECREF(kept);
    Py_XDECREF(kept_domain);
    return rule == ARGUS_NVTX_RULE_NONE ? Py_NewRef(Py_None) : target_text(&rules->rule[rule]);
}

static PyObject *nvtx_defaults(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused)) {
    PyObject *list = PyList_New(0);
    for (const char *const *text = argus_nvtx_defaults; list != NULL && *text != NULL; text += 2) {
        PyObject *pair = Py_BuildValue("(ss)", text[0], text[1]);
        if (pair == NULL || PyList_Append(list, pair) < 0)
            Py_CLEAR(list);
        Py_XDECREF(pair);
    }
    return list;
}

static PyObject *nvtx_status(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused)) {
    static struct argus_nvtx_state now; /* the GIL's */
    if (argus_nvtx.rules == NULL)
        Py_RETURN_NONE;
    argus_nvtx_settle();
    argus_lock();
    now = argus_nvtx;
    argus_unlock();
    PyObject *names = PyList_New(0);
    for (unsigned i = 0; names != NULL && i < now.names_used; i++) {
        PyObject *name = PyUnicode_DecodeUTF8(now.name[i], (Py_ssize_t)strlen(now.name[i]), "replace");
        if (name == NULL || PyList_Append(names, name) < 0)
            Py_CLEAR(names);
        Py_XDECREF(name);
    }
    if (names == NULL)
        return NULL;
    /* It may quote a file of the user's, cut anywhere. */
    PyObject *message = PyUnicode_DecodeUTF8(now.message, (Py_ssize_t)strlen(now.message), "replace");
    return Py_BuildValue("{sKsKsKsKsdsNsN}", "ranges", (unsigned long long)now.ranges, "ignored",
                         (unsigned long long)now.ignored, "unbalanced", (unsigned long long)now.unbalanced,
                         "dropped", (unsigned long long)now.dropped, "ignored_range_ns", now.cost_per_range,
                         "ignored_names", names, "message", message);
}

static PyMethodDef functions[] = {
    {"nvtx_rules", nvtx_rules, METH_VARARGS,
     "nvtx_rules(path=None)\n--\n\n"
     "(rules, complaint): those of the file and then ARGUS's own; and what is wrong with the file, or an empty "
     "text."},
    {"nvtx_target", nvtx_target, METH_VARARGS,
     "nvtx_target(rules, name, domain='', /)\n--\n\n"
     "What the rules make of a range: 'phase:kind', 'pause:kind', 'iteration', 'ignore', or None."},
    {"nvtx_defaults", nvtx_defaults, METH_NOARGS,
     "nvtx_defaults()\n--\n\nARGUS's own rules: (target, pattern), in the order in which they are tried."},
    {"nvtx_status", nvtx_status, METH_NOARGS,
     "nvtx_status()\n--\n\nWhat came in by NVTX, as a dict; None where this library was not loaded for it."},
    {NULL, NULL, 0, NULL},
};

int argus_add_nvtx(PyObject *module) { return PyModule_AddFunctions(module, functions); }
