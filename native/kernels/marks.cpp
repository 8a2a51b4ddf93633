#include "marks.h"

#include "cuda_driver.h"

namespace argus {
namespace {

/* Makes marks differ from memsets of others, which mostly write 0 or -1. */
constexpr uint32_t kMask = 0x41525547;

bool is_capture_error(int error) { return error >= 900 && error < 910; } /* CUDA_ERROR_STREAM_CAPTURE_* */

} // namespace

void Marks::configure(const Cupti *cupti, uint32_t wanted) {
    cupti_ = cupti;
    wanted_ = wanted;
}

bool Marks::prepare_memset() {
    const Driver *driver = find_driver();
    void *context = nullptr;
    if (driver == nullptr || driver->current(&context) != 0 || context == nullptr)
        return false;
    if (context_ != nullptr)
        return true;
    if (driver->create_stream(&stream_, kNonBlocking) != 0 || driver->allocate(&memory_, 4) != 0)
        return false;
    uint32_t id;
    if (cupti_->stream_id == nullptr || cupti_->stream_id(nullptr, stream_, 0, &id) != kSuccess)
        return false; /* marks could not be told from other memsets */
    stream_id_.store(id, std::memory_order_release);
    context_ = context;
    return true;
}

bool Marks::try_next(uint32_t attribution) {
    switch (attribution) {
    case ARGUS_ATTRIBUTION_MEMSET:
        return prepare_memset();
    case ARGUS_ATTRIBUTION_CALL:
        return cupti_->enable_driver_call != nullptr && find_driver() != nullptr &&
               cupti_->enable_driver_call(kDriverGetVersion, 1) == kSuccess;
    case ARGUS_ATTRIBUTION_API:
        return cupti_->enable(kDriver) == kSuccess && cupti_->enable(kRuntime) == kSuccess;
    default:
        return true;
    }
}

bool Marks::choose() {
    const Driver *driver = find_driver();
    void *context = nullptr;
    /* The thread that tells boundaries may come to the GPU later than others. */
    if (driver != nullptr && (driver->current(&context) != 0 || context == nullptr))
        return false;
    static const uint32_t order[] = {ARGUS_ATTRIBUTION_MEMSET, ARGUS_ATTRIBUTION_CALL, ARGUS_ATTRIBUTION_API};
    uint32_t chosen = ARGUS_ATTRIBUTION_NONE;
    for (uint32_t attribution : order)
        if ((wanted_ == ARGUS_ATTRIBUTION_UNDECIDED || wanted_ == attribution) && try_next(attribution)) {
            chosen = attribution;
            break;
        }
    attribution_.store(chosen, std::memory_order_release);
    return true;
}

void Marks::demote() {
    uint32_t now = attribution();
    uint32_t next = now;
    failures_ = 0;
    do {
        bool last = next == ARGUS_ATTRIBUTION_API || wanted_ != ARGUS_ATTRIBUTION_UNDECIDED;
        next = last ? static_cast<uint32_t>(ARGUS_ATTRIBUTION_NONE) : next + 1;
    } while (!try_next(next));
    if (now == ARGUS_ATTRIBUTION_CALL)
        cupti_->enable_driver_call(kDriverGetVersion, 0);
    attribution_.store(next, std::memory_order_release);
}

void Marks::enable_again() {
    uint32_t now = attribution();
    if (now == ARGUS_ATTRIBUTION_CALL || now == ARGUS_ATTRIBUTION_API)
        try_next(now);
}

bool Marks::mark_memset(uint32_t number) {
    const Driver *driver = find_driver();
    void *current = nullptr;
    int capture = 0;
    /* An error here means that a stream is being captured which the legacy
     * stream would join; asking does not disturb it. */
    if (driver->current(&current) != 0 || driver->capturing(legacy_stream(), &capture) != 0 || capture != 0)
        return false;
    bool elsewhere = current != context_;
    if (elsewhere && driver->push(context_) != 0) {
        failures_++;
        return false;
    }
    int failure = driver->memset(memory_, number ^ kMask, 1, stream_);
    if (elsewhere)
        driver->pop(&current);
    if (failure == 0)
        failures_ = 0;
    else if (!is_capture_error(failure))
        failures_++;
    return failure == 0;
}

bool Marks::mark(uint32_t number) {
    switch (attribution()) {
    case ARGUS_ATTRIBUTION_MEMSET:
        return mark_memset(number);
    case ARGUS_ATTRIBUTION_CALL: {
        int version;
        return find_driver()->version(&version) == 0;
    }
    default:
        return true; /* nothing to be done: the records of launches tell */
    }
}

bool Marks::is_mark(const uint8_t *record, uint32_t *number) const {
    if (field<uint32_t>(record, offset::copy_stream) != stream_id_.load(std::memory_order_acquire) ||
        field<uint64_t>(record, offset::bytes) != 4)
        return false;
    *number = field<uint32_t>(record, offset::memset_value) ^ kMask;
    return true;
}

} // namespace argus
