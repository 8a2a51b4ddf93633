/* How a boundary gets a correlation id.
 *
 * Correlation ids follow the order of launches across threads, so a kernel
 * belongs to the last boundary whose id is not after its own.  The ways to get
 * one, best first:
 *
 *   MEMSET  a 4-byte memset on a stream of ARGUS's own; its record carries the
 *           id and, as its value, the boundary's number.
 *   CALL    cuDriverGetVersion, the only driver call whose record is enabled
 *           (CUPTI 12.6 on); found again by its time.
 *   API     records of all runtime and driver calls; the launches before and
 *           after the boundary tell its id.
 *   NONE    no attribution.
 *
 * Everything here but the matching of records runs in the training thread. */
#ifndef ARGUS_MARKS_H
#define ARGUS_MARKS_H

#include <atomic>
#include <cstdint>

#include "../kernels_api.h"
#include "cupti_api.h"

namespace argus {

class Marks {
  public:
    /* wanted: one attribution, or UNDECIDED: the best that works. */
    void configure(const Cupti *cupti, uint32_t wanted);

    uint32_t attribution() const { return attribution_.load(std::memory_order_acquire); }

    /* Chooses, once the GPU is in use; false: not yet possible. */
    bool choose();
    /* This one was refuted: on to the next. */
    void demote();
    /* After another profiler: what it switched off again. */
    void enable_again();

    /* Makes the mark; false: none could be made now. */
    bool mark(uint32_t number);
    /* The driver keeps failing: another way is needed. */
    bool failing() const { return failures_ >= kMostFailures; }

    /* Whether the memset record is a mark, and of which boundary. */
    bool is_mark(const uint8_t *record, uint32_t *number) const;

  private:
    static constexpr unsigned kMostFailures = 3; /* in a row */

    bool prepare_memset();
    bool mark_memset(uint32_t number);
    bool try_next(uint32_t attribution);

    const Cupti *cupti_ = nullptr;
    uint32_t wanted_ = ARGUS_ATTRIBUTION_UNDECIDED;
    std::atomic<uint32_t> attribution_{ARGUS_ATTRIBUTION_UNDECIDED};
    unsigned failures_ = 0;
    void *context_ = nullptr, *stream_ = nullptr;
    uint64_t memory_ = 0;
    std::atomic<uint32_t> stream_id_{UINT32_MAX};
};

} // namespace argus

#endif
