/* The library's side: from kernels and boundaries to seconds per phase and
 * iteration.
 *
 * An iteration is told when its last boundary has its id and every buffer that
 * was requested before it has come back: CUPTI gives a record its place in a
 * buffer when the kernel is launched, and a buffer back when all its kernels
 * have ended. */
#ifndef ARGUS_LEDGER_H
#define ARGUS_LEDGER_H

#include "boundaries.h"
#include "entries.h"
#include "pool.h"
#include "timeline.h"

namespace argus {

/* One iteration, or what is known of it so far; nanoseconds. */
struct Told {
    uint64_t ordinal, end;
    bool attributed;
    uint64_t idle, busy;
    uint64_t compute[ARGUS_DEVICE_PHASES], communication[ARGUS_DEVICE_PHASES];
};

/* One occurrence of a phase within an iteration. */
struct Occurred {
    uint32_t occurrence, phase, kind;
    uint64_t compute, communication;
};

/* occurred: those that had anything to do with the device. */
using Listener = void (*)(void *self, const Told &iteration, const Occurred *occurred, unsigned count);

class Ledger {
  public:
    Ledger(Pool *pool, Boundaries *boundaries, Listener listener, void *self)
        : pool_(pool), boundaries_(boundaries), listener_(listener), self_(self) {}
    bool reserve();

    /* Forgets what is under way: a new segment, or a gap. */
    void reset();

    void add(const Entry &entry);
    /* Records of some iteration that has begun were lost. */
    void lose() { suspect_ = boundaries_->head(); }
    void marked(uint32_t number, uint32_t id);
    /* Records of calls, for ATTRIBUTION_CALL and ATTRIBUTION_API; times are CLOCK_MONOTONIC. */
    void called(uint64_t start, uint32_t id);
    void launched(uint64_t start, uint32_t id);

    /* Tells every iteration that is complete. */
    void advance();

    /* Iterations that wait for their records. */
    bool waiting() const { return boundaries_->head() - boundaries_->tail() > 1; }
    /* Iterations in a row whose boundaries got no id: marks do not work here. */
    unsigned unmarked() const { return unmarked_; }
    void forgive() { unmarked_ = 0; }
    void forget_counts() { incomplete_ = late_ = overflowed_ = 0; }
    uint64_t incomplete() const { return incomplete_; }
    uint64_t late() const { return late_; }
    uint64_t overflowed() const { return overflowed_; }

  private:
    static constexpr unsigned kOccurrences = 4096;

    bool ready(const Boundary &boundary);
    void see_launch(uint32_t id);
    bool resolve(uint32_t number);
    void process(uint32_t first, uint32_t last);
    void settle(uint32_t first, uint32_t last);
    void select(uint32_t first, uint32_t last);
    void account(const Entries &entries, uint32_t first, uint32_t last, bool communication);
    uint32_t owner_of(uint32_t id, uint32_t first, uint32_t last, uint32_t hint);
    Occurred *occurrence_of(const struct argus_boundary &what);
    void add_host(uint32_t first, uint32_t last);
    void finish(const Boundary &end);
    void open();

    Pool *pool_;
    Boundaries *boundaries_;
    Listener listener_;
    void *self_;
    Entries pending_, computing_, communicating_;
    Timeline timeline_;

    bool fresh_ = true;    /* nothing was processed yet */
    bool broken_ = true;   /* the iteration at hand can't be told */
    bool unknown_ = false; /* because marks that were made did not come back */
    bool following_ = false; /* a boundary was seen: kernels are of interest */
    bool anchored_ = false;  /* kernels from before the ring's first boundary were accounted for */
    bool launch_seen_ = false; /* ATTRIBUTION_API: the last launch before the boundary resolved last */
    uint32_t last_launch_ = 0;
    uint64_t lost_ = 0; /* boundaries lost by then */
    uint32_t suspect_ = 0; /* records were lost of iterations that begin before this boundary */
    uint32_t begun_ = 0;   /* the boundary where the iteration at hand begins */
    uint64_t kernels_ = 0; /* of the iteration at hand */
    Told told_ = {};
    uint64_t reached_[2][ARGUS_DEVICE_PHASES] = {}; /* end of the union so far, by kind and phase */
    Occurred occurred_[kOccurrences];
    unsigned occurrences_ = 0;
    unsigned unmarked_ = 0;
    uint64_t incomplete_ = 0, late_ = 0, overflowed_ = 0;
};

} // namespace argus

#endif
