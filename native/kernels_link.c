#include "kernels_link.h"

#include <dlfcn.h>

#include "lock.h"

const struct argus_kernels_api *argus_kernels, *argus_kernels_attached;
int (*argus_is_capturing)(void), (*argus_is_profiling)(void);

static int is_capturing(void) {
    return argus_is_capturing != NULL && !argus_without_gil && argus_is_capturing();
}

void argus_kernels_ask_profiler(void) {
    if (argus_kernels_attached != NULL && argus_is_profiling != NULL)
        argus_kernels_attached->profiler(argus_is_profiling());
}

const char *argus_kernels_start(const char *library, const char *cupti) {
    static struct argus_kernels_status status;
    const struct argus_kernels_api *(*get)(uint32_t) = NULL;
    if (argus_kernels != NULL)
        return NULL;
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL)
        return dlerror();
    *(void **)&get = dlsym(handle, "argus_kernels_get");
    const struct argus_kernels_api *api = get == NULL ? NULL : get(ARGUS_KERNELS_API);
    if (api == NULL)
        return "libargus_kernels.so is of another version than this package; point "
               "CUDA_INJECTION64_PATH to the one in the folder of the argus package";
    if (api->start(cupti) != 0) {
        api->status(&status);
        return status.message;
    }
    argus_kernels = api;
    return NULL;
}

void argus_kernels_attach(struct argus_segment *segment) {
    if (argus_kernels == NULL || segment->device_state == NULL || !argus_segment_writable(segment))
        return;
    struct argus_kernels_target target = {
        .source = argus_segment_source(segment, (struct argus_text){"kernels", 7}),
        .device = segment->device_state,
        .kernels = segment->kernels,
        .phases = segment->device_phases,
        .iterations = segment->device_iterations,
    };
    if (segment->flight[ARGUS_FLIGHT_KERNEL].events != NULL)
        target.flight = &segment->flight[ARGUS_FLIGHT_KERNEL];
    argus_kernels->attach(&target, is_capturing);
    argus_kernels_attached = argus_kernels;
}

void argus_kernels_boundary(const struct argus_tracer *tracer, uint32_t type, uint64_t now) {
    struct argus_boundary boundary = {
        .now = now, .type = type, .phase = ARGUS_NO_PHASE, .depth = tracer->depth, .paused = tracer->pauses != 0};
    if (tracer->depth != 0) {
        const struct argus_open *top = &tracer->open[tracer->depth - 1];
        boundary.phase = top->phase;
        boundary.kind = (uint32_t)tracer->segment->kind[top->phase];
        boundary.occurrence = top->occurrence;
    }
    if (type == ARGUS_BOUNDARY_END) {
        boundary.ordinal = tracer->segment->completed_iterations;
        if (!argus_shared) /* else argus_iterated() asks: not under the lock */
            argus_kernels_ask_profiler();
    }
    argus_kernels_attached->boundary(&boundary);
}

void argus_kernels_detach(void) {
    if (argus_kernels_attached != NULL)
        argus_kernels_attached->detach();
    argus_kernels_attached = NULL;
}
