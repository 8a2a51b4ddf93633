/* Garbage collections as host phase gc.
 *
 * What gc.callbacks calls is a builtin: it costs a tenth of a Python function, and
 * has no frame that torch.compile could want to compile. */
#include "lock.h"
#include "python.h"
#include "stack_sampler.h"
#include "tracer.h"

#define SHORTEST 100000 /* ns; shorter ones, hundreds a second, stay in the phase that they interrupt */

static PyObject *gc_phase;
static uint64_t begun; /* 0: none that we know of; Python runs one collection at a time */

static PyObject *on_collection(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count) {
    if (!argus_tracer.active || count < 1 || !PyUnicode_Check(args[0]))
        Py_RETURN_NONE;
    uint64_t begin = begun, now = argus_tracer_now();
    if (PyUnicode_CompareWithASCIIString(args[0], "start") == 0) {
        begun = now;
        Py_RETURN_NONE;
    }
    begun = 0;
    if (begin == 0 || now < begin + SHORTEST)
        Py_RETURN_NONE;
    argus_stacks_collected(begin, now);
    struct argus_phase_ref phase = argus_phase_resolve(gc_phase);
    argus_lock();
    if (argus_tracer.active)
        argus_tracer_past(phase.index, begin);
    argus_unlock();
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"on_collection", (PyCFunction)(void (*)(void))on_collection, METH_FASTCALL,
     "on_collection(moment, info)\n--\n\n"
     "For gc.callbacks: a collection of 0.1 ms or more becomes the host phase gc, in whichever thread it ran,\n"
     "unless another one is in a phase that may wait for its peers, and loses nothing by it."},
    {NULL, NULL, 0, NULL},
};

int argus_add_collections(PyObject *module) {
    PyObject *name = PyUnicode_FromString("gc");
    gc_phase = name == NULL ? NULL : argus_get_phase(name, NULL);
    Py_XDECREF(name);
    return gc_phase == NULL ? -1 : PyModule_AddFunctions(module, functions);
}
