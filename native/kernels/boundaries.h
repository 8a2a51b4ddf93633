/* The boundaries between phases and iterations, on their way from the training
 * thread to the library's own.
 *
 * A ring with one producer (the GIL's holder) and one consumer (who holds the
 * consumer's mutex).  An entry is published before its mark is made, because
 * the mark's record may come back at once; `state` says when the mark is done. */
#ifndef ARGUS_BOUNDARIES_H
#define ARGUS_BOUNDARIES_H

#include <atomic>
#include <cstdint>

#include "../kernels_api.h"

namespace argus {

constexpr uint32_t kBoundaries = 8192;

enum class Mark : uint32_t {
    kPending = 0, /* being made */
    kMade = 1,
    kSkipped = 2, /* none was possible */
};

struct Boundary {
    /* The producer's. */
    struct argus_boundary what;
    uint32_t number;
    uint32_t attribution;         /* enum argus_attribution in force */
    uint64_t marked_until;        /* CLOCK_MONOTONIC when the mark was made */
    uint64_t requests;            /* buffers requested by then: the records before it are in those */
    uint64_t lost;                /* boundaries so far that found no place in the ring */
    std::atomic<uint32_t> state;  /* enum Mark */
    /* The consumer's. */
    uint32_t id;                  /* correlation id of the mark */
    bool known;
    bool launches;                /* ATTRIBUTION_API: some were seen until the next boundary, */
    uint32_t first_launch, last_launch; /* from the first to the last of these */
};

class Boundaries {
  public:
    /* Producer: an entry to be filled; null: the consumer is behind. */
    Boundary *reserve() {
        uint32_t head = head_.load(std::memory_order_relaxed);
        if (head - tail_.load(std::memory_order_acquire) == kBoundaries)
            return nullptr;
        Boundary *entry = &ring_[head % kBoundaries];
        entry->number = head;
        return entry;
    }
    void publish() { head_.store(head_.load(std::memory_order_relaxed) + 1, std::memory_order_release); }

    /* Consumer. */
    uint32_t head() const { return head_.load(std::memory_order_acquire); }
    uint32_t tail() const { return tail_.load(std::memory_order_relaxed); }
    Boundary &at(uint32_t number) { return ring_[number % kBoundaries]; }
    bool holds(uint32_t number) const { return number - tail() < head() - tail(); }
    void release_until(uint32_t number) { tail_.store(number, std::memory_order_release); }

  private:
    Boundary ring_[kBoundaries];
    std::atomic<uint32_t> head_{0}, tail_{0};
};

} // namespace argus

#endif
