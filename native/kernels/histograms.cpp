#include "histograms.h"

#include <cmath>
#include <cstring>

extern "C" {
#include "../histogram.h"
}

namespace argus {
namespace {

constexpr double kQuantiles[ARGUS_KERNEL_QUANTILES] = {0.5, 0.9, 0.99};

/* Upper bound of a bucket, nanoseconds. */
double bound(unsigned bucket) {
    return std::exp2(ARGUS_HISTOGRAM_MIN_EXPONENT + static_cast<double>(bucket) / 8) * 1e9;
}

uint64_t count_of(const uint32_t *bucket) {
    uint64_t count = 0;
    for (unsigned i = 0; i < kBuckets; i++)
        count += bucket[i];
    return count;
}

/* The value below which `fraction` of the durations lie: geometric between the
 * bounds of its bucket, as histogram_quantile() does with native histograms. */
uint64_t quantile(const uint32_t *bucket, uint64_t count, double fraction) {
    double wanted = fraction * static_cast<double>(count), before = 0;
    for (unsigned i = 0; i < kBuckets; i++) {
        if (bucket[i] == 0 || before + bucket[i] < wanted) {
            before += bucket[i];
            continue;
        }
        double part = (wanted - before) / bucket[i];
        if (i == 0)
            return static_cast<uint64_t>(bound(0) * part);
        return static_cast<uint64_t>(bound(i - 1) * std::exp2(part / 8));
    }
    return 0;
}

} // namespace

void Histograms::reset() {
    std::memset(class_, 0, sizeof class_);
    oldest_ = held_ = 0;
}

void Histograms::add(unsigned kernel_class, uint64_t nanoseconds) {
    Class &c = class_[kernel_class];
    unsigned bucket = argus_histogram_index(nanoseconds);
    c.changed = true;
    c.sum += nanoseconds;
    c.total[bucket]++;
    c.recent[bucket]++;
}

void Histograms::forget_oldest() {
    const Iteration &gone = ring_[oldest_];
    for (unsigned k = 0; k < kClasses; k++)
        for (unsigned i = 0; i < kBuckets; i++)
            class_[k].window[i] -= gone.count[k][i];
    oldest_ = (oldest_ + 1) % kWindowMost;
    held_--;
}

void Histograms::end_iteration(uint64_t end) {
    while (held_ == kWindowMost || (held_ >= kWindowLeast && ring_[oldest_].end + kWindowSpan < end))
        forget_oldest();
    Iteration &now = ring_[(oldest_ + held_++) % kWindowMost];
    now.end = end;
    for (unsigned k = 0; k < kClasses; k++) {
        Class &c = class_[k];
        std::memcpy(now.count[k], c.recent, sizeof c.recent);
        std::memset(c.recent, 0, sizeof c.recent);
        for (unsigned i = 0; i < kBuckets; i++)
            c.window[i] += now.count[k][i];
        c.changed |= c.sum != 0;
    }
}

void Histograms::touch() {
    for (Class &c : class_)
        c.changed = true;
}

void Histograms::publish(struct argus_kernel *kernels) {
    for (unsigned k = 0; k < kClasses; k++) {
        Class &c = class_[k];
        if (!c.changed)
            continue;
        c.changed = false;
        struct argus_kernel &record = kernels[k];
        uint64_t count = held_ >= kWindowLeast ? count_of(c.window) : 0;
        uint64_t seq = argus_sequence_begin(&record.seconds.seq);
        for (unsigned i = 0; i < kBuckets; i++)
            argus_store(&record.seconds.bucket[i], c.total[i]);
        argus_store(&record.seconds.sum, c.sum);
        argus_store(&record.window_count, count);
        for (unsigned q = 0; q < ARGUS_KERNEL_QUANTILES; q++)
            argus_store(&record.window_quantile[q], count == 0 ? 0 : quantile(c.window, count, kQuantiles[q]));
        argus_sequence_end(&record.seconds.seq, seq);
    }
}

} // namespace argus
