/* The kernel library from Python: starting it, and what torch knows about
 * captures and profilers. */
#include "python.h"

#include <string.h>

#include "kernels_link.h"

static PyObject *capture_query;   /* torch._C._cuda_isCurrentStreamCapturing */
static PyObject *profiler_module; /* torch.autograd.profiler */

/* The truth of a new reference; anything that went wrong is no. */
static int take_truth(PyObject *value) {
    int truth = value != NULL && PyObject_IsTrue(value) == 1;
    Py_XDECREF(value);
    return truth;
}

static int ask_capturing(void) {
    PyObject *type, *value, *traceback;
    if (capture_query == NULL)
        return 0;
    PyErr_Fetch(&type, &value, &traceback);
    int capturing = take_truth(PyObject_CallObject(capture_query, NULL));
    PyErr_Restore(type, value, traceback);
    return capturing;
}

static PyObject *find(const char *module, const char *attribute) {
    PyObject *name = PyUnicode_FromString(module);
    PyObject *found = name == NULL ? NULL : PyImport_GetModule(name); /* never imports */
    Py_XDECREF(name);
    if (found == NULL || attribute == NULL)
        return found;
    PyObject *value = PyObject_GetAttrString(found, attribute);
    Py_DECREF(found);
    return value;
}

/* Called where iterations end; torch may have been imported since the last one. */
static int ask_profiling(void) {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    if (capture_query == NULL)
        capture_query = find("torch._C", "_cuda_isCurrentStreamCapturing");
    if (profiler_module == NULL)
        profiler_module = find("torch.autograd.profiler", NULL);
    int profiling = profiler_module != NULL &&
                    take_truth(PyObject_GetAttrString(profiler_module, "_is_profiler_enabled"));
    PyErr_Restore(type, value, traceback);
    return profiling;
}

static PyObject *kernels_start(PyObject *Py_UNUSED(module), PyObject *args, PyObject *kwargs) {
    static char *names[] = {"library", "cupti", NULL};
    const char *library, *cupti = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "s|z", names, &library, &cupti))
        return NULL;
    argus_is_capturing = ask_capturing;
    argus_is_profiling = ask_profiling;
    const char *reason = argus_kernels_start(library, cupti);
    return reason == NULL ? Py_NewRef(Py_None) : PyUnicode_DecodeUTF8(reason, (Py_ssize_t)strlen(reason), "replace");
}

static PyObject *kernels_status(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused)) {
    static const char *const states[] = {"off", "on", "aside"};
    static const char *const attributions[] = {"undecided", "none", "memset", "call", "api"};
    struct argus_kernels_status status;
    if (argus_kernels == NULL)
        Py_RETURN_NONE;
    argus_kernels->status(&status);
    /* It may quote a file of the user's, cut anywhere. */
    PyObject *message = PyUnicode_DecodeUTF8(status.message, (Py_ssize_t)strlen(status.message), "replace");
    return Py_BuildValue("{sssssNsKsK}", "state", states[status.state], "attribution",
                         attributions[status.attribution], "message", message, "events",
                         (unsigned long long)status.events, "dropped", (unsigned long long)status.dropped);
}

static PyMethodDef functions[] = {
    {"kernels_start", (PyCFunction)(void (*)(void))kernels_start, METH_VARARGS | METH_KEYWORDS,
     "kernels_start(library, cupti=None)\n--\n\n"
     "Loads the kernel library and starts recording, for segments created from then on.\n"
     "None, or in words why it can't; cupti: a copy to use where the process has none."},
    {"kernels_status", kernels_status, METH_NOARGS,
     "kernels_status()\n--\n\nWhat the kernel library is doing, as a dict; None: it was not started."},
    {NULL, NULL, 0, NULL},
};

int argus_add_kernels_link(PyObject *module) { return PyModule_AddFunctions(module, functions); }
