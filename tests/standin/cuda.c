/* A stand-in for libcuda.so.1: the driver's functions that marks need. */
#include <stddef.h>
#include <stdint.h>

#include "standin.h"

#define MARK_STREAM 4242
#define FIRST_CONTEXT ((void *)(uintptr_t)0xc0de)
#define SECOND_CONTEXT ((void *)(uintptr_t)0xbeef)

void standin_mark(uint32_t value, uint32_t stream);
void standin_version_call(void);

int cuCtxGetCurrent(void **context) {
    void *current = standin.elsewhere && standin.pushed == 0 ? SECOND_CONTEXT : FIRST_CONTEXT;
    *context = standin.no_context ? NULL : current;
    return 0;
}

int cuCtxPushCurrent_v2(void *context) {
    if (context != FIRST_CONTEXT)
        return 201; /* CUDA_ERROR_INVALID_CONTEXT */
    standin.pushed++;
    __atomic_fetch_add(&standin.pushes, 1, __ATOMIC_RELAXED);
    return 0;
}

int cuCtxPopCurrent_v2(void **context) {
    *context = FIRST_CONTEXT;
    standin.pushed--;
    return 0;
}

int cuStreamCreate(void **stream, unsigned flags) {
    *stream = (void *)(uintptr_t)MARK_STREAM;
    return flags == 1 ? 0 : 1;
}

int cuMemAlloc_v2(uint64_t *memory, size_t bytes) {
    *memory = 0x7000 + bytes;
    return 0;
}

int cuMemsetD32Async(uint64_t memory, unsigned value, size_t count, void *stream) {
    (void)memory;
    if (standin.memset_error != 0)
        return standin.memset_error;
    if (standin.elsewhere && standin.pushed == 0)
        return 400; /* CUDA_ERROR_INVALID_HANDLE: the stream is the other context's */
    if (count == 1)
        standin_mark(value, (uint32_t)(uintptr_t)stream);
    return 0;
}

int cuStreamIsCapturing(void *stream, int *status) {
    (void)stream;
    *status = 0;
    return standin.capturing ? 906 : 0; /* CUDA_ERROR_STREAM_CAPTURE_IMPLICIT */
}

int cuDriverGetVersion(int *version) {
    *version = 12090;
    standin_version_call();
    return 0;
}
