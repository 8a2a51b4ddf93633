#include "pending.h"

#include "events.h"
#include "python.h"
#include "tracer.h"

static int asked, wanted;

static void initialise(void) {
    PyObject *module = PyImport_ImportModule("argus");
    PyObject *result = module == NULL ? NULL : PyObject_CallMethod(module, "init", NULL);
    if (result == NULL) {
        PyErr_Clear();
        PySys_WriteStderr("argus: tracing is off: ARGUS_NVTX_INIT is set, but `import argus` failed; "
                          "install argus-gpu for this Python\n");
    }
    Py_XDECREF(result);
    Py_XDECREF(module);
}

static int with_the_gil(void *Py_UNUSED(unused)) {
    __atomic_store_n(&asked, 0, __ATOMIC_RELAXED);
    if (__atomic_exchange_n(&wanted, 0, __ATOMIC_RELAXED) && !argus_tracer.active)
        initialise();
    if (argus_nvtx.message[0] != '\0')
        argus_report("%s", argus_nvtx.message); /* which says nothing twice */
    if (argus_tracer.active && argus_tracer.segment->completed_iterations > 0)
        argus_iterated();
    return 0;
}

void argus_nvtx_ask(void) {
    if (!Py_IsInitialized() || __atomic_exchange_n(&asked, 1, __ATOMIC_RELAXED))
        return;
    if (Py_AddPendingCall(with_the_gil, NULL) < 0) /* full; there will be another occasion */
        __atomic_store_n(&asked, 0, __ATOMIC_RELAXED);
}

void argus_nvtx_want_initialisation(void) { __atomic_store_n(&wanted, 1, __ATOMIC_RELAXED); }

void argus_nvtx_ask_for_initialisation(void) {
    if (__atomic_load_n(&wanted, __ATOMIC_RELAXED))
        argus_nvtx_ask();
}
