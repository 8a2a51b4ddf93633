/* A segment as its writer sees it: creation, liveness, and the primitives that
 * write to it.  Nothing read back from the mapping decides where to write:
 * counts are kept here, in private memory.
 *
 * One caller at a time (the GIL's holder).  In a forked child every primitive
 * does nothing: the mapping is shared with the parent. */
#ifndef ARGUS_SEGMENT_H
#define ARGUS_SEGMENT_H

#include <stddef.h>
#include <sys/types.h>

#include "flight.h"
#include "layout.h"

#define ARGUS_SAMPLES 64 /* occurrences of a collective remembered within an iteration */
#define ARGUS_UNKNOWN (-1)

/* What one collective did in the iteration that is being recorded. */
struct argus_running {
    uint64_t fastest;
    uint64_t occurrences;
    double best_bandwidth;
    uint64_t sample[ARGUS_SAMPLES];
};

struct argus_segment {
    unsigned char *base; /* NULL: closed */
    size_t bytes;
    int fd; /* -1: anonymous */
    dev_t device;
    ino_t inode;
    char *path;
    unsigned epoch;             /* argus_epoch when created */
    uint64_t touched;           /* when argus_segment_touch last did something */
    volatile int lost;          /* the file shrank under the mapping (guard.h) */

    struct argus_header *header;
    struct argus_identity *identity;
    struct argus_state *state;
    struct argus_histogram *iteration_seconds;
    struct argus_phase *phases;
    struct argus_collective *collectives;
    struct argus_iteration *iterations;
    struct argus_work *work;
    struct argus_work_iteration *work_iterations;
    struct argus_source *sources;
    /* NULL where kernels are not traced. */
    struct argus_kernel *kernels;
    struct argus_device *device_state;
    struct argus_device_phase *device_phases;
    struct argus_device_iteration *device_iterations;
    struct argus_flight flight[ARGUS_FLIGHT_WRITERS];
    /* NULL where stacks are not sampled. */
    struct argus_stacks *stacks;
    struct argus_stack_generation *stack_generations;

    unsigned phases_used, collectives_used, work_used, sources_used;
    uint64_t completed_iterations;
    uint64_t kind[ARGUS_MAX_PHASES];
    uint64_t phase_ns[ARGUS_MAX_PHASES]; /* of the iteration being recorded */
    double work_done[ARGUS_MAX_WORK];    /* the same */
    uint64_t dropped;                    /* phases and collectives that found no record */
    unsigned communicator[ARGUS_MAX_COLLECTIVES]; /* first collective of the same communicator */
    uint64_t enqueued[ARGUS_MAX_COLLECTIVES];     /* indexed by communicator */
    uint64_t completed[ARGUS_MAX_COLLECTIVES];
    struct argus_running running[ARGUS_MAX_COLLECTIVES];
    uint32_t random;
};

/* Number of forks between this process and the one that loaded the library. */
extern unsigned argus_epoch;

uint64_t argus_monotonic_ns(void);

/* Copies text into a fixed field: cut at a character boundary, control
 * characters replaced, the rest of the field zeroed. */
void argus_copy_text(char *field, size_t size, const char *text, size_t length);

/* Creates a segment; path NULL: anonymous memory.  `created` 0: now.  `stacks`:
 * with room for the stack sampler.  The file appears under its name when it is
 * complete.  Returns 0, or an errno with nothing left behind; EAGAIN: no lock
 * could be had. */
int argus_segment_create(struct argus_segment *segment, const char *path, uint64_t created,
                         struct argus_flight_sizes flight, int stacks);

/* state: enum argus_run_state, or 0 to leave it.  ENDED also removes the file. */
void argus_segment_close(struct argus_segment *segment, uint64_t state);

/* Stores to a mapping leave a tmpfs file's time alone; this sets it, now and
 * then, so that it tells how long a dead rank's file has been lying there. */
void argus_segment_touch(struct argus_segment *segment);

static inline int argus_segment_writable(const struct argus_segment *segment) {
    return segment->base != NULL && (segment->fd < 0 || segment->epoch == argus_epoch);
}

struct argus_text {
    const char *data;
    size_t length;
};

/* An identity with every field that is known; seq is ignored. */
void argus_segment_identify(struct argus_segment *segment, const struct argus_identity *identity);

/* ARGUS_OTHER_PHASE when all are taken. */
unsigned argus_segment_phase(struct argus_segment *segment, struct argus_text name, uint64_t kind);
void argus_segment_set_kind(struct argus_segment *segment, unsigned index, uint64_t kind);
/* flag: enum argus_phase_flag, added to those that it has. */
void argus_segment_flag_phase(struct argus_segment *segment, unsigned index, uint64_t flag);

/* -1 when all are taken. */
int argus_segment_collective(struct argus_segment *segment, struct argus_text op, struct argus_text group,
                             struct argus_text group_id, int64_t members, int64_t nodes);

/* Counts one occurrence of a phase. */
void argus_segment_count_phase(struct argus_segment *segment, unsigned index, uint64_t ns);

/* Counts one occurrence of a collective, inclusive time; not its sequence. */
void argus_segment_count_collective(struct argus_segment *segment, unsigned index, uint64_t ns,
                                    uint64_t bytes);

/* Sets how many operations of the communicator were enqueued; returns how many it was before. */
uint64_t argus_segment_renumber(struct argus_segment *segment, unsigned index, uint64_t enqueued);
/* The communicator's next sequence number, which goes to the record. */
uint64_t argus_segment_enqueue(struct argus_segment *segment, unsigned index);
void argus_segment_complete(struct argus_segment *segment, unsigned index, uint64_t sequence);
void argus_segment_sequence(struct argus_segment *segment, unsigned index, uint64_t enqueued,
                            uint64_t completed);

/* busy UINT64_MAX: the sum of the compute and host phases recorded since the
 * last call. */
void argus_segment_end_iteration(struct argus_segment *segment, uint64_t iteration, uint64_t end,
                                 uint64_t wall, uint64_t busy);
/* Forgets what was recorded since the last iteration ended (not the histograms). */
void argus_segment_reset_iteration(struct argus_segment *segment);

void argus_segment_open_phase(struct argus_segment *segment, int index, uint64_t begin);
void argus_segment_pause(struct argus_segment *segment, struct argus_text kind, uint64_t begin);
void argus_segment_resume(struct argus_segment *segment);

/* 0, or -1 when all records are taken. */
int argus_segment_work(struct argus_segment *segment, struct argus_text unit, struct argus_text phase,
                       double amount);

/* NULL when all records are taken. */
struct argus_source *argus_segment_source(struct argus_segment *segment, struct argus_text name);

#endif
