/* The buffers that CUPTI fills.
 *
 * All memory is reserved once; a page costs something only from its first use
 * on, and the buffer used last is the next to be used, so a quiet process
 * stays small.  Callbacks of CUPTI come from any thread, with its locks held:
 * here they meet one short mutex and nothing else. */
#ifndef ARGUS_POOL_H
#define ARGUS_POOL_H

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace argus {

constexpr size_t kBufferBytes = 128 << 10; /* about 600 kernel records: they come back soon */
constexpr unsigned kAtOnce = 96;           /* in CUPTI's hands or waiting to be read: 12 MiB */
constexpr unsigned kBuffers = 256;         /* with those that another profiler never gave back */

struct Filled {
    uint8_t *data;
    size_t valid;
    uint64_t requested; /* CLOCK_MONOTONIC */
};

class Pool {
  public:
    /* False: no memory.  May be called again. */
    bool reserve();

    /* A buffer of zeroes; null when too many are out, which is counted. */
    uint8_t *request(uint64_t now);
    /* False: not a buffer that is out. */
    bool complete(uint8_t *buffer, size_t valid);

    /* Waits up to `nanoseconds` for a filled buffer; of several, the one that
     * was requested first, for its records are the oldest. */
    bool take(Filled *filled, uint64_t nanoseconds);
    void give_back(const Filled &filled);

    /* How many were requested so far; never 0 once the GPU is in use. */
    uint64_t requests() const { return requests_.load(std::memory_order_acquire); }
    /* Whether every buffer requested up to then was given back. */
    bool all_back(uint64_t requests);
    /* Nobody will complete the buffers that are out: do not wait for them. */
    void abandon();
    /* Wakes take(). */
    void wake();

    uint64_t refused() const { return refused_.load(std::memory_order_relaxed); }
    /* Bytes ever in use. */
    uint64_t bytes() const { return used_.load(std::memory_order_relaxed) * kBufferBytes; }

  private:
    enum State : uint8_t { kUnused, kFree, kOut, kFilled, kReading, kAbandoned };
    struct Slot {
        State state;
        uint64_t number;
        uint64_t requested;
        size_t valid;
    };
    unsigned oldest() const;
    unsigned index_of(const uint8_t *buffer) const;

    pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t condition_;
    uint8_t *memory_ = nullptr;
    Slot slot_[kBuffers] = {};
    unsigned free_[kBuffers];
    unsigned free_count_ = 0;
    unsigned fresh_ = 0;  /* slots never used begin here */
    unsigned in_use_ = 0; /* out, filled or being read */
    unsigned filled_ = 0;
    bool woken_ = false;
    std::atomic<uint64_t> requests_{0}, refused_{0}, used_{0};
};

} // namespace argus

#endif
