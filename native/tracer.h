/* The live accounting of this process.
 *
 * One stack of open phases across all threads: each moment belongs to the
 * phase begun last and still open, so no second counts twice.  Called with the
 * GIL held, which is the lock of everything here; where NVTX may call, under
 * argus_lock() (lock.h). */
#ifndef ARGUS_TRACER_H
#define ARGUS_TRACER_H

#include <pthread.h>

#include "segment.h"

#define ARGUS_DEPTH 64 /* open phases at a time; more are dropped, and counted */

struct argus_open {
    unsigned phase;
    int collective; /* -1: a plain phase */
    uint32_t occurrence; /* counts them */
    pthread_t thread;
    uint64_t begin;
    uint64_t exclusive;
    int paused;             /* begun within a declared pause */
    uint64_t active_begin;  /* of a collective, from here on */
    uint64_t bytes;
    uint64_t sequence;
};

/* Phases of one name and thread that are open without a place. */
struct argus_surplus {
    unsigned phase;
    int collective;
    pthread_t thread;
    unsigned count;
    uint32_t newest; /* occurrence */
};

struct argus_tracer {
    int active;
    unsigned generation;  /* indices into the segment are valid within one */
    unsigned coordinates; /* changes when communicators must be named again */
    struct argus_segment *segment;
    struct argus_source *source;
    struct argus_flight *flight; /* NULL: off */
    unsigned pause_name;         /* in the flight recorder, of the open pause */
    uint64_t last; /* when time was last accounted for */
    unsigned depth;
    unsigned overflow; /* open ones that found no place in `open`, */
    struct argus_surplus surplus[ARGUS_DEPTH]; /* and whose they are: where that is known */
    uint32_t occurrences;
    struct argus_open open[ARGUS_DEPTH];

    unsigned pauses;      /* open ones, nested */
    uint64_t pause_since;
    uint64_t pause_begin;  /* of the part that is not accounted for yet */
    uint64_t paused_total; /* of closed pauses, since the start */

    uint64_t owner;           /* token of the open iteration block; 0: none */
    int blocks;               /* iterations are given by blocks, so marks are ignored */
    uint64_t iteration_begin; /* 0: none is being recorded */
    uint64_t iteration_paused;
    uint64_t next_number;

    uint64_t events, dropped;
    double cost_per_event; /* nanoseconds, calibrated */
    uint64_t other_cost;   /* nanoseconds, measured where iterations end */
};

extern struct argus_tracer argus_tracer;

/* The clock of the accounting; a test may hold it still.  0: the real one. */
extern uint64_t argus_test_clock;

/* Returns 0, or an errno. */
int argus_tracer_start(struct argus_segment *segment, double cost_per_event);
void argus_tracer_stop(void);
/* Stops if this is the segment in use. */
void argus_tracer_release(struct argus_segment *segment);

/* The rest needs argus_tracer.active. */
void argus_tracer_begin(unsigned phase);
void argus_tracer_end(unsigned phase);
void argus_tracer_begin_collective(unsigned phase, int collective, uint64_t bytes);
void argus_tracer_end_collective(unsigned phase, int collective);
void argus_tracer_drop(void);
/* The time since `begin` was spent in this phase, which is told only now: what was
 * on top then gives it away, and no kernel was launched meanwhile. */
void argus_tracer_past(unsigned phase, uint64_t begin);
uint64_t argus_tracer_now(void);

void argus_tracer_begin_iteration(uint64_t token);
/* number: NULL: the one after the last.  failed: it was not completed and is forgotten. */
void argus_tracer_end_iteration(uint64_t token, const uint64_t *number, int failed);
/* The block was lost without an end. */
void argus_tracer_abandon_iteration(uint64_t token);
/* Ends the iteration and, where `begin`, begins the next; for callers that see boundaries only. */
void argus_tracer_mark(const uint64_t *number, int begin);

void argus_tracer_pause(struct argus_text kind);
void argus_tracer_resume(void);

#endif
