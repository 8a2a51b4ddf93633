/* What the library exports. */
#include <pthread.h>

#include <cstdio>

#include "core.h"

namespace {

argus::Core core;

void forget_in_child() { core.forget_in_child(); }

int start(const char *cupti) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, [] { pthread_atfork(nullptr, nullptr, forget_in_child); });
    return core.start(cupti);
}

void attach(const struct argus_kernels_target *target, int (*capturing)(void)) { core.attach(*target, capturing); }
void detach() { core.detach(); }
void boundary(const struct argus_boundary *what) { core.boundary(*what); }
void profiler(int active) { core.profiler(active != 0); }
void status(struct argus_kernels_status *status) { core.status(status); }
void shutdown() { core.shutdown(); }

const struct argus_kernels_api api = {ARGUS_KERNELS_API, start,  attach,   detach,
                                      boundary,          profiler, status, shutdown};

} // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT const struct argus_kernels_api *argus_kernels_get(uint32_t version) {
    return version == ARGUS_KERNELS_API ? &api : nullptr;
}

/* The CUDA driver calls this when it starts, for the library that
 * CUDA_INJECTION64_PATH names. */
EXPORT int InitializeInjection(void) {
    if (start(nullptr) != 0) {
        struct argus_kernels_status now;
        status(&now);
        fprintf(stderr, "argus: kernel tracing is off: %s\n", now.message);
    }
    return 1; /* 0 could cost the process its GPU */
}
