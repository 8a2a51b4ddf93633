/* What the library writes into the segment. */
#include <pthread.h>
#include <time.h>

#include "core.h"

extern "C" {
#include "../histogram.h"
}

namespace argus {

/* Nanoseconds that the library's thread has run. */
uint64_t Core::cpu_time() const {
    struct timespec used = {0, 0};
    clockid_t own;
    if (running_ && pthread_getcpuclockid(thread_, &own) == 0)
        clock_gettime(own, &used);
    return static_cast<uint64_t>(used.tv_sec) * 1000000000u + static_cast<uint64_t>(used.tv_nsec);
}

void Core::publish() {
    const Counts &counts = reader_.counts();
    uint64_t dropped = dropped_cupti_ + counts.dropped_time + counts.dropped_clock + ledger_.late() +
                       ledger_.overflowed() + recorder_.lost();
    events_.store(counts.records, std::memory_order_relaxed);
    lost_.store(dropped, std::memory_order_relaxed);
    if (!attached_)
        return;
    histograms_.publish(target_.kernels);
    struct argus_device *device = target_.device;
    argus_store(&device->attribution, marks_.attribution());
    argus_store(&device->records, counts.records);
    argus_store(&device->incomplete, ledger_.incomplete());
    argus_store(&device->gaps, gaps_);
    argus_store(&device->gap, gap_);
    argus_store(&device->jit, counts.jit);
    argus_store(&device->marks, recorder_.marks());
    argus_store(&device->memory, pool_.bytes());
    argus_store(&device->dropped_cupti, dropped_cupti_);
    argus_store(&device->dropped_time, counts.dropped_time);
    argus_store(&device->dropped_clock, counts.dropped_clock);
    argus_store(&device->dropped_late, ledger_.late());
    argus_store(&device->dropped_pending, ledger_.overflowed());
    struct argus_source *source = target_.source;
    if (source == nullptr)
        return;
    argus_store(&source->cost, cpu_time() - cpu_then_ + recorder_.cost() + counts.overhead);
    argus_store(&source->dropped, dropped);
    argus_publish(&source->events, counts.records);
    argus_store(&source->last_event, last_filled_.load());
    argus_store(&source->enabled, state_.load() == ARGUS_KERNELS_ON);
}

void Core::told(void *self, const Told &iteration, const Occurred *occurred, unsigned count) {
    static_cast<Core *>(self)->write(iteration, occurred, count);
}

void Core::write(const Told &iteration, const Occurred *occurred, unsigned count) {
    histograms_.end_iteration(iteration.end);
    uint64_t jit = reader_.counts().jit;
    struct argus_device_iteration *slot = &target_.iterations[(iteration.ordinal - 1) % ARGUS_ITERATION_SLOTS];
    uint64_t seq = argus_sequence_begin(&slot->seq);
    argus_store(&slot->ordinal, iteration.ordinal);
    argus_store(&slot->attributed, iteration.attributed);
    argus_store(&slot->idle, iteration.idle);
    argus_store(&slot->busy, iteration.busy);
    argus_store(&slot->jit, jit - jit_told_);
    for (unsigned p = 0; p < ARGUS_DEVICE_PHASES; p++) {
        argus_store(&slot->compute[p], iteration.compute[p]);
        argus_store(&slot->communication[p], iteration.communication[p]);
        argus_store(&target_.phases[p].compute, target_.phases[p].compute + iteration.compute[p]);
        argus_store(&target_.phases[p].communication,
                    target_.phases[p].communication + iteration.communication[p]);
    }
    argus_sequence_end(&slot->seq, seq);
    jit_told_ = jit;

    for (unsigned i = 0; i < count; i++) {
        const Occurred &one = occurred[i];
        bool communication = one.kind == ARGUS_KIND_COMMUNICATION;
        uint64_t took = communication ? one.communication : one.compute;
        if (took != 0 && one.phase < ARGUS_MAX_PHASES)
            argus_histogram_add(&target_.phases[one.phase].seconds, took);
    }
    argus_histogram_add(&target_.phases[ARGUS_DEVICE_OUTSIDE].seconds, iteration.idle);
    argus_store(&target_.device->busy, target_.device->busy + iteration.busy);
    argus_publish(&target_.device->iterations, iteration.ordinal);
}

} // namespace argus
