#include "reader.h"

namespace argus {
namespace {

constexpr unsigned kAhead = 4;
/* GPU and host clocks are brought together by CUPTI, a little off. */
constexpr uint64_t kBefore = 1000000000, kAfter = 10000000;

bool is_kernel(const uint8_t *record) {
    uint32_t kind = field<uint32_t>(record, offset::kind);
    return kind == kConcurrentKernel || kind == kKernel;
}

bool is_overhead_of_cupti(uint32_t kind) {
    return kind == kOverheadFlush || kind == kOverheadInstrumentation || kind == kOverheadResource ||
           kind == kOverheadBufferRequest;
}

} // namespace

void Reader::read(const Filled &filled, uint64_t now) {
    usable_ = clock_->valid(filled.requested);
    earliest_ = filled.requested > kBefore ? filled.requested - kBefore : 0;
    latest_ = now + kAfter;
    /* Some records ahead, so that what is known of their names comes into the
     * cache meanwhile. */
    const uint8_t *ahead[kAhead];
    unsigned taken = 0, done = 0;
    uint8_t *record = nullptr;
    CuptiResult result;
    while ((result = cupti_->next_record(filled.data, filled.valid, &record)) == kSuccess) {
        if (taken - done == kAhead)
            one(ahead[done++ % kAhead]);
        if (is_kernel(record))
            names_.expect(field<const char *>(record, offset::kernel_name));
        ahead[taken++ % kAhead] = record;
    }
    while (done != taken)
        one(ahead[done++ % kAhead]);
    if (result != kMaxLimitReached && result != kInvalidKind)
        counts_.broken++;
}

void Reader::one(const uint8_t *record) {
    uint32_t kind = field<uint32_t>(record, offset::kind), number;
    switch (kind) {
    case kConcurrentKernel:
    case kKernel: {
        const char *name = field<const char *>(record, offset::kernel_name);
        Names::Known known = {ARGUS_KERNEL_OTHER, ARGUS_FLIGHT_NO_NAME};
        if (name != nullptr)
            known = names_.know(name);
        device(record, known, field<uint32_t>(record, offset::kernel_device),
               field<uint32_t>(record, offset::kernel_stream),
               field<uint32_t>(record, offset::kernel_correlation));
        break;
    }
    case kMemcpy:
        copy(record, ARGUS_KERNEL_MEMCPY);
        break;
    case kMemset:
        if (marks_->is_mark(record, &number))
            ledger_->marked(number, field<uint32_t>(record, offset::copy_correlation));
        else
            copy(record, ARGUS_KERNEL_MEMSET);
        break;
    default:
        host(record, kind);
    }
}

void Reader::copy(const uint8_t *record, uint16_t kernel_class) {
    device(record, {kernel_class, ARGUS_FLIGHT_NO_NAME}, field<uint32_t>(record, offset::copy_device),
           field<uint32_t>(record, offset::copy_stream), field<uint32_t>(record, offset::copy_correlation));
}

void Reader::device(const uint8_t *record, Names::Known known, uint32_t device, uint32_t stream,
                    uint32_t correlation) {
    uint64_t start = field<uint64_t>(record, offset::start), end = field<uint64_t>(record, offset::end);
    if (start == 0 || end < start) {
        counts_.dropped_time++;
        return;
    }
    if (!usable_) {
        counts_.dropped_clock++;
        return;
    }
    start = clock_->to_monotonic(start);
    end = clock_->to_monotonic(end);
    if (start < earliest_ || end > latest_ || end < start) {
        counts_.dropped_clock++; /* stamped by the clock that was in force before */
        return;
    }
    counts_.records++;
    histograms_->add(known.kernel_class, end - start);
    if (flight_ != nullptr)
        argus_flight_add(flight_, ARGUS_FLIGHT_ON_DEVICE, known.kernel_class, known.flight, stream, start,
                         end - start, static_cast<uint64_t>(device) << 32 | correlation);
    int communication = argus_kernel_is_communication(static_cast<enum argus_kernel_class>(known.kernel_class));
    ledger_->add({start, end, correlation, static_cast<uint32_t>(communication)});
}

void Reader::host(const uint8_t *record, uint32_t kind) {
    switch (kind) {
    case kDriver:
    case kRuntime: {
        if (!usable_)
            break;
        uint32_t id = field<uint32_t>(record, offset::api_correlation);
        uint64_t start = clock_->to_monotonic(field<uint64_t>(record, offset::api_start));
        if (marks_->attribution() == ARGUS_ATTRIBUTION_API)
            ledger_->launched(start, id);
        else if (kind == kDriver && field<uint32_t>(record, offset::api_callback) == kDriverGetVersion)
            ledger_->called(start, id);
        break;
    }
    case kJit:
    case kOverhead: {
        bool jit = kind == kJit;
        uint64_t start = field<uint64_t>(record, jit ? offset::start : offset::overhead_start);
        uint64_t end = field<uint64_t>(record, jit ? offset::end : offset::overhead_end);
        if (!usable_ || start == 0 || end < start)
            break;
        start = clock_->to_monotonic(start);
        end = clock_->to_monotonic(end);
        if (end > latest_ || end < start)
            break; /* stamped by another clock */
        uint64_t took = end - start;
        if (jit)
            counts_.jit += took;
        else if (is_overhead_of_cupti(field<uint32_t>(record, offset::overhead_kind)))
            counts_.overhead += took;
        break;
    }
    default:
        break; /* of a kind that another tool has enabled */
    }
}

} // namespace argus
