/* From the time stamps of CUPTI's records to CLOCK_MONOTONIC.
 *
 * The stamps are CLOCK_REALTIME by default, but a profiler may have registered
 * a clock of its own and left it behind (Kineto's counts TSC ticks, which makes
 * every kernel look two or three times as long).  So pairs of both clocks are
 * taken all the time: a clock that runs at another rate is converted, one that
 * jumps or changes its rate begins a new epoch, and buffers that were under way
 * at that moment are discarded. */
#ifndef ARGUS_CLOCK_H
#define ARGUS_CLOCK_H

#include <cstdint>

namespace argus {

class Clock {
  public:
    /* Both clocks at one moment, give or take `doubt` nanoseconds; realtime:
     * CLOCK_REALTIME of the same moment, which a stamp that is near to it
     * identifies at once. */
    void sample(uint64_t monotonic, uint64_t stamp, uint64_t realtime, uint64_t doubt);

    /* Whether the stamps of a buffer requested then can be converted. */
    bool valid(uint64_t requested) const { return known_ && requested >= since_; }

    uint64_t to_monotonic(uint64_t stamp) const {
        int64_t away = static_cast<int64_t>(stamp - stamp_);
        if (unit_)
            return monotonic_ + static_cast<uint64_t>(away);
        return monotonic_ + static_cast<uint64_t>(static_cast<int64_t>(static_cast<double>(away) * period_));
    }

    /* Epochs after the first: how often the clock was found changed. */
    uint64_t changes() const { return changes_; }
    /* Forgets everything: the next sample begins anew. */
    void reset();

  private:
    void begin(uint64_t monotonic, uint64_t stamp, uint64_t realtime, uint64_t doubt);

    bool started_ = false;
    bool known_ = false;     /* the rate is known */
    bool unit_ = true;       /* one tick is one nanosecond */
    double period_ = 1;      /* nanoseconds of one tick */
    uint64_t since_ = 0;     /* monotonic time of the epoch's first sample */
    uint64_t first_ = 0;     /* its stamp */
    uint64_t monotonic_ = 0; /* of the sample that stamps are converted by */
    uint64_t stamp_ = 0;
    uint64_t doubt_ = 0;
    uint64_t changes_ = 0;
};

} // namespace argus

#endif
