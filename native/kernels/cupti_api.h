/* The part of CUPTI's activity API that is used, declared here so that no CUDA
 * is needed to build.
 *
 * Numbers and offsets were compared with the headers of CUPTI 11.8.87,
 * 12.1.105, 12.4.127, 12.6.80, 12.8.90, 12.9.79, 13.0.85 and 13.5.25
 * (cupti_activity.h, cupti_result.h, cupti_driver_cbid.h): equal in all.
 * Records grow at their end from version to version, so they are only ever
 * stepped through with cuptiActivityGetNextRecord. */
#ifndef ARGUS_CUPTI_API_H
#define ARGUS_CUPTI_API_H

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace argus {

using CuptiResult = int;
constexpr CuptiResult kSuccess = 0;
constexpr CuptiResult kMaxLimitReached = 12; /* no more records in the buffer */
constexpr CuptiResult kNotInitialized = 15;  /* no driver, CUPTI up to 12.9 */
constexpr CuptiResult kInvalidKind = 21;     /* a record that is not complete: stop there */
constexpr CuptiResult kUnknown = 999;        /* no driver, CUPTI 13 */

enum ActivityKind : uint32_t {
    kMemcpy = 1,
    kMemset = 2,
    kKernel = 3, /* never enabled: it serializes the kernels */
    kDriver = 4,
    kRuntime = 5,
    kConcurrentKernel = 10,
    kOverhead = 17,
    kJit = 52, /* since 11.x; an error where it is not known */
};

/* CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER: buffers come zeroed, so that
 * CUPTI does not zero them in the thread that launches. */
constexpr int kAttributeZeroedBuffers = 5;
/* CUPTI_DRIVER_TRACE_CBID_cuDriverGetVersion. */
constexpr uint32_t kDriverGetVersion = 2;

/* Kinds of overhead that CUPTI itself causes (enum CUpti_ActivityOverheadKind). */
constexpr uint32_t kOverheadDriverCompiler = 1;
constexpr uint32_t kOverheadFlush = 1u << 16;
constexpr uint32_t kOverheadInstrumentation = 2u << 16;
constexpr uint32_t kOverheadResource = 3u << 16;
constexpr uint32_t kOverheadBufferRequest = 7u << 16;

/* Offsets into the records. */
namespace offset {
constexpr size_t kind = 0;
/* Kernel, memcpy, memset, JIT. */
constexpr size_t start = 16, end = 24;
/* CUpti_ActivityKernel8 (11.8) … 13 (13.5). */
constexpr size_t kernel_device = 40, kernel_stream = 48, kernel_correlation = 92, kernel_name = 104;
/* CUpti_ActivityMemcpy5 … 7, CUpti_ActivityMemset4 and 5. */
constexpr size_t memset_value = 4, bytes = 8, copy_device = 32, copy_stream = 40, copy_correlation = 44;
/* CUpti_ActivityAPI. */
constexpr size_t api_callback = 4, api_start = 8, api_end = 16, api_correlation = 32;
/* CUpti_ActivityOverhead … 3. */
constexpr size_t overhead_kind = 4, overhead_start = 24, overhead_end = 32;
} // namespace offset

template <typename T>
inline T field(const uint8_t *record, size_t at) {
    T value;
    std::memcpy(&value, record + at, sizeof value);
    return value;
}

using RequestCallback = void (*)(uint8_t **buffer, size_t *size, size_t *most_records);
using CompleteCallback = void (*)(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid);

/* The functions found; those marked optional may be null. */
struct Cupti {
    CuptiResult (*register_callbacks)(RequestCallback, CompleteCallback);
    CuptiResult (*enable)(uint32_t kind);
    CuptiResult (*disable)(uint32_t kind);
    CuptiResult (*flush_all)(uint32_t flag);
    CuptiResult (*next_record)(uint8_t *buffer, size_t valid, uint8_t **record);
    CuptiResult (*dropped_records)(void *context, uint32_t stream, size_t *dropped);
    CuptiResult (*timestamp)(uint64_t *now);                                      /* optional */
    CuptiResult (*set_attribute)(int attribute, size_t *size, void *value);       /* optional */
    CuptiResult (*enable_driver_call)(uint32_t callback, uint8_t enable);         /* optional: 12.6 */
    CuptiResult (*stream_id)(void *context, void *stream, uint8_t own, uint32_t *id); /* optional */
};

/* Finds CUPTI: a copy that the process has already, $ARGUS_CUPTI, the one at
 * `path` (may be null), then by the usual names.  Returns null, or why there is
 * none. */
const char *load_cupti(Cupti *cupti, const char *path);

/* What a return code means to somebody on call; static text. */
const char *explain(CuptiResult result);

} // namespace argus

#endif
