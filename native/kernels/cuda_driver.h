/* The functions of the CUDA driver that marks need; found only where the
 * process has loaded libcuda already. */
#ifndef ARGUS_CUDA_DRIVER_H
#define ARGUS_CUDA_DRIVER_H

#include <cstddef>
#include <cstdint>

namespace argus {

/* Signatures as in cuda.h of CUDA 11.8 to 13. */
struct Driver {
    int (*current)(void **context);                                               /* cuCtxGetCurrent */
    int (*push)(void *context);                                                   /* cuCtxPushCurrent_v2 */
    int (*pop)(void **context);                                                   /* cuCtxPopCurrent_v2 */
    int (*create_stream)(void **stream, unsigned flags);                          /* cuStreamCreate */
    int (*allocate)(uint64_t *memory, size_t bytes);                              /* cuMemAlloc_v2 */
    int (*memset)(uint64_t memory, unsigned value, size_t count, void *stream);   /* cuMemsetD32Async */
    int (*capturing)(void *stream, int *status);                                  /* cuStreamIsCapturing */
    int (*version)(int *version);                                                 /* cuDriverGetVersion */
};

constexpr unsigned kNonBlocking = 1;                           /* CU_STREAM_NON_BLOCKING */
inline void *legacy_stream() { return reinterpret_cast<void *>(1); } /* CU_STREAM_LEGACY */

/* Null where libcuda is not in the process or lacks one of them. */
const Driver *find_driver();

} // namespace argus

#endif
