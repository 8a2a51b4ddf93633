/* A stand-in for libcuda.so.1: the driver's functions that marks need. */
#include <stddef.h>
#include <stdint.h>

#include "standin.h"

#define MARK_STREAM 4242

void standin_mark(uint32_t value, uint32_t stream);
void standin_version_call(void);

int cuCtxGetCurrent(void **context) {
    *context = standin.no_context ? NULL : (void *)(uintptr_t)0xc0de;
    return 0;
}

int cuCtxPushCurrent_v2(void *context) { return context == NULL ? 201 : 0; }

int cuCtxPopCurrent_v2(void **context) {
    *context = (void *)(uintptr_t)0xc0de;
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
