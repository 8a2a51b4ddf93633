/* Samples the stacks of this process's Python threads, in the rank itself.
 *
 * A thread of its own asks the interpreter, ten times a second, for a pending
 * call: the main thread makes it between two bytecodes and writes its own stack
 * down, so nobody waits for the GIL and no thread is switched.  While the main
 * thread waits outside of Python (on a device, a socket, a queue) it makes no
 * such call and holds no GIL; then the sampler takes the GIL, which is free, and
 * looks itself.  Either way a sample counts for the ticks since the last one:
 * as long as a pending call is not made, the main thread has not moved. */
#ifndef ARGUS_STACK_SAMPLER_H
#define ARGUS_STACK_SAMPLER_H

#include "python.h"
#include "stack_categories.h"

/* Begins to sample into a segment that has room for stacks.  `thread`: the
 * training thread's identity, as Python counts; `interval`: nanoseconds.  Takes
 * the patterns (may be NULL) over.  -1 with an exception. */
int argus_stacks_start(struct argus_segment *segment, unsigned long thread, uint64_t interval,
                       struct argus_stack_patterns *patterns);

/* Writes to this segment no more, and lets the thread end.  With the GIL. */
void argus_stacks_detach(const struct argus_segment *segment);

/* A collection of garbage took from `begin` to `end` (CLOCK_MONOTONIC); it leaves no
 * trace in any stack.  With the GIL. */
void argus_stacks_collected(uint64_t begin, uint64_t end);

/* Stops and waits for the thread.  Gives the GIL up meanwhile. */
void argus_stacks_stop(void);

struct argus_stacks_status {
    int active;
    uint64_t interval, samples, failures, cost;
};
struct argus_stacks_status argus_stacks_status(void);

#endif
