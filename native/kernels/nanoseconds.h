/* CLOCK_MONOTONIC and its like in nanoseconds. */
#ifndef ARGUS_NANOSECONDS_H
#define ARGUS_NANOSECONDS_H

#include <time.h>

#include <cstdint>

namespace argus {

inline uint64_t clock_now(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

inline uint64_t monotonic_now() { return clock_now(CLOCK_MONOTONIC); }

} // namespace argus

#endif
