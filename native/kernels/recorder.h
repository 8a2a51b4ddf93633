/* The training thread's side: boundaries in, marks out.
 *
 * Costs nothing but a few loads until CUPTI has asked for its first buffer. */
#ifndef ARGUS_RECORDER_H
#define ARGUS_RECORDER_H

#include <atomic>
#include <cstdint>

#include "boundaries.h"
#include "marks.h"
#include "pool.h"

namespace argus {

class Recorder {
  public:
    Recorder(Pool *pool, Boundaries *boundaries, Marks *marks)
        : pool_(pool), boundaries_(boundaries), marks_(marks) {}

    /* A new tracer begins. */
    void begin(int (*capturing)(void));

    void boundary(const struct argus_boundary &what);

    /* From the library's thread: marks do not come back, use another way. */
    void refute() { refuted_.store(true, std::memory_order_release); }

    uint64_t marks() const { return made_.load(std::memory_order_relaxed); }
    uint64_t lost() const { return lost_.load(std::memory_order_relaxed); }
    /* Nanoseconds that marks took in the training thread. */
    uint64_t cost() const { return cost_.load(std::memory_order_relaxed); }

  private:
    bool mark(Boundary *entry);
    void adapt(uint64_t now);

    Pool *pool_;
    Boundaries *boundaries_;
    Marks *marks_;
    int (*capturing_)(void) = nullptr;

    uint32_t phase_ = ARGUS_NO_PHASE, occurrence_ = 0, paused_ = 0; /* as last recorded */
    uint32_t most_depth_ = 0;  /* in this iteration */
    uint32_t limit_ = UINT32_MAX; /* phases nested deeper belong to the one around them */
    unsigned expensive_ = 0;   /* iterations in a row */
    uint64_t iteration_ = 0, iteration_cost_ = 0; /* when the last one ended; the cost by then */
    std::atomic<bool> refuted_{false};
    std::atomic<uint64_t> made_{0}, lost_{0}, cost_{0};
};

} // namespace argus

#endif
