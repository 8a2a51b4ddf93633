#include "clock.h"

namespace argus {
namespace {

constexpr double kUnitTolerance = 1e-3;      /* nearer to 1 than this is a clock of nanoseconds */
constexpr double kRateTolerance = 1e-3;      /* NTP slews by at most 5e-4 */
constexpr double kDrift = 2e-6;              /* doubt that age adds to a sample */
constexpr double kJitter = 20e3;             /* ns, on top of what is known to be in doubt */
constexpr uint64_t kLeastBaseline = 5000000; /* ns over which a rate can be told */
constexpr uint64_t kNearRealtime = 1000000000;

double absolute(double value) { return value < 0 ? -value : value; }

} // namespace

void Clock::reset() {
    started_ = false;
    known_ = false;
}

void Clock::begin(uint64_t monotonic, uint64_t stamp, uint64_t realtime, uint64_t doubt) {
    uint64_t away = stamp > realtime ? stamp - realtime : realtime - stamp;
    uint64_t apart = stamp > monotonic ? stamp - monotonic : monotonic - stamp;
    known_ = away < kNearRealtime || apart < kNearRealtime;
    unit_ = true;
    period_ = 1;
    since_ = monotonic_ = monotonic;
    first_ = stamp_ = stamp;
    doubt_ = doubt;
    started_ = true;
}

void Clock::sample(uint64_t monotonic, uint64_t stamp, uint64_t realtime, uint64_t doubt) {
    if (!started_) {
        begin(monotonic, stamp, realtime, doubt);
        return;
    }
    double elapsed = static_cast<double>(monotonic - monotonic_);
    double ticks = static_cast<double>(static_cast<int64_t>(stamp - stamp_));
    double tolerance = kJitter + static_cast<double>(doubt + doubt_) + kRateTolerance * elapsed;
    if (known_ && absolute(ticks * period_ - elapsed) > tolerance) {
        changes_++;
        begin(monotonic, stamp, realtime, doubt);
        return;
    }
    uint64_t baseline = monotonic - since_;
    if (baseline >= kLeastBaseline) {
        double all = static_cast<double>(static_cast<int64_t>(stamp - first_));
        if (all <= 0) { /* it stands still, or runs backwards: no clock yet */
            begin(monotonic, stamp, realtime, doubt);
            return;
        }
        double period = static_cast<double>(baseline) / all;
        if (!known_) {
            known_ = true;
            unit_ = absolute(period - 1) < kUnitTolerance;
            period_ = unit_ ? 1 : period;
        } else if (!unit_) {
            period_ = period;
        }
    } else if (!known_) {
        return; /* the reference stays the epoch's first sample */
    }
    /* A better sample, or one as good as the older one has become. */
    if (doubt <= doubt_ + static_cast<uint64_t>(elapsed * kDrift)) {
        monotonic_ = monotonic;
        stamp_ = stamp;
        doubt_ = doubt;
    }
}

} // namespace argus
