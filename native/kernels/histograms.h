/* Durations of kernels by class: since the start, and over the window of
 * iterations.
 *
 * All memory is here; what a segment shows is a copy that publish() brings up
 * to date. */
#ifndef ARGUS_HISTOGRAMS_H
#define ARGUS_HISTOGRAMS_H

#include <cstdint>

#include "../kernel_classes.h"
#include "../kernels_api.h"

namespace argus {

constexpr unsigned kClasses = ARGUS_KERNEL_CLASSES;
static_assert(ARGUS_KERNEL_CLASSES <= ARGUS_MAX_KERNEL_CLASSES);
constexpr unsigned kBuckets = ARGUS_HISTOGRAM_BUCKETS;

/* The window of an iteration, as in exporter/argus/segment/window.py. */
constexpr uint64_t kWindowSpan = 10000000000u;
constexpr unsigned kWindowLeast = 4, kWindowMost = 64;

class Histograms {
  public:
    void reset();

    void add(unsigned kernel_class, uint64_t nanoseconds);

    /* Everything added since the last call belongs to an iteration that ended then. */
    void end_iteration(uint64_t end);

    /* Writes what changed since the last call; after touch(), everything. */
    void publish(struct argus_kernel *kernels);
    void touch();

  private:
    struct Class {
        bool changed;
        uint64_t sum;
        uint64_t total[kBuckets];
        uint32_t recent[kBuckets]; /* since the last iteration ended */
        uint32_t window[kBuckets];
    };
    struct Iteration {
        uint64_t end;
        uint32_t count[kClasses][kBuckets];
    };
    void forget_oldest();

    Class class_[kClasses] = {};
    Iteration ring_[kWindowMost] = {};
    unsigned oldest_ = 0, held_ = 0;
};

} // namespace argus

#endif
