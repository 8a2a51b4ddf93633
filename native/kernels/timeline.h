/* Iterations on the clock: how long the device was idle, and how long the rank
 * was busy.  Each second counts once, whatever runs at the same time. */
#ifndef ARGUS_TIMELINE_H
#define ARGUS_TIMELINE_H

#include "entries.h"
#include "spans.h"

namespace argus {

/* What happened between two moments; nanoseconds. */
struct Elapsed {
    uint64_t idle; /* no kernel, no copy, no collective that waits on the host, no declared pause */
    uint64_t busy; /* computing, idle, or in a host phase */
};

class Timeline {
  public:
    bool reserve();
    void reset();

    /* Kernels and copies, sorted by start; what they add may reach beyond the
     * moment of the next advance(). */
    void add(const Entries &computing, const Entries &communicating);
    /* The host's side, in order of time. */
    void add_host(uint32_t kind, bool paused, uint64_t begin, uint64_t end);

    /* From the moment of the last call to this one; everything in between has
     * been added.  What lies before is forgotten. */
    Elapsed advance(uint64_t from, uint64_t to);

  private:
    Spans computing_, communicating_;         /* of the device */
    Spans host_, waiting_, paused_;           /* of the host: kinds host and communication */
    Spans first_, second_;                    /* for intermediate results */
};

} // namespace argus

#endif
