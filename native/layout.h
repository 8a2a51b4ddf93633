/* The layout of a segment: the one definition, for the writers in C and, through
 * layout_table.c, for the readers in Python.
 *
 * A segment is one memory-mapped file per rank.  It starts with a header that
 * lists its sections; a section is an array of records of one kind.  A reader
 * goes by the header's offsets and counts after checking them against the
 * file's size, and skips sections that it does not know, so sections can be
 * added without a new version.  Changing a record's fields needs a new version.
 *
 * All integers are in the byte order of the writing machine, all times are
 * nanoseconds; points in time are CLOCK_MONOTONIC of the node.
 *
 * Consistency: a record that has a `seq` field is guarded by it (a sequence
 * lock: odd while it is being written).  Everything else is written by single
 * aligned 8-byte stores and is meaningful one word at a time.  Text is written
 * before the record that holds it becomes visible (count of its section's
 * `used`, or the record's seq) and does not change after that.
 */
#ifndef ARGUS_LAYOUT_H
#define ARGUS_LAYOUT_H

#include <stdint.h>

#define ARGUS_MAGIC "ARGUSSEG"
#define ARGUS_LAYOUT_VERSION 1u
#define ARGUS_BYTE_ORDER 0x01020304u

#define ARGUS_MAX_SECTIONS 24
#define ARGUS_MAX_PHASES 33 /* 32 of the user's, and the last one: "other" */
#define ARGUS_OTHER_PHASE (ARGUS_MAX_PHASES - 1)
#define ARGUS_MAX_COLLECTIVES 32
#define ARGUS_MAX_WORK 16
#define ARGUS_MAX_SOURCES 8
#define ARGUS_ITERATION_SLOTS 72 /* the window's 64, and room for the one being written */
#define ARGUS_MAX_KERNEL_CLASSES 32
#define ARGUS_DEVICE_PHASES (ARGUS_MAX_PHASES + 1) /* those of the host, and one more */
#define ARGUS_DEVICE_OUTSIDE (ARGUS_DEVICE_PHASES - 1) /* launched outside of every phase */
#define ARGUS_KERNEL_QUANTILES 3 /* 0.5, 0.9, 0.99 */
#define ARGUS_FLIGHT_MOST 65536  /* events of one ring */
#define ARGUS_FLIGHT_NAMES 1024  /* names that one ring can refer to */
#define ARGUS_FLIGHT_NO_NAME 0xffffu
#define ARGUS_STACK_CATEGORIES 16 /* those of enum argus_stack_category, and room for more */
#define ARGUS_STACK_GENERATIONS 4
#define ARGUS_STACK_NODES 1536  /* of one generation, */
#define ARGUS_STACK_TEXT 24576  /* and bytes of its names */

/* Exponential histogram, Prometheus native schema 3: 8 buckets per octave.
 * Bucket 0 holds everything up to 2^-20 s, bucket i (1..256) holds
 * (2^(-20+(i-1)/8), 2^(-20+i/8)] s, bucket 257 everything above 2^12 s. */
#define ARGUS_HISTOGRAM_SCHEMA 3
#define ARGUS_HISTOGRAM_MIN_EXPONENT (-20)
#define ARGUS_HISTOGRAM_MAX_EXPONENT 12
#define ARGUS_HISTOGRAM_BUCKETS 258

enum argus_section_id {
    ARGUS_SECTION_IDENTITY = 1,
    ARGUS_SECTION_STATE = 2,
    ARGUS_SECTION_ITERATION_HISTOGRAM = 3,
    ARGUS_SECTION_PHASES = 4,
    ARGUS_SECTION_COLLECTIVES = 5,
    ARGUS_SECTION_ITERATIONS = 6,
    ARGUS_SECTION_WORK = 7,
    ARGUS_SECTION_SOURCES = 8,
    ARGUS_SECTION_KERNELS = 9,
    ARGUS_SECTION_DEVICE = 10,
    ARGUS_SECTION_DEVICE_PHASES = 11,
    ARGUS_SECTION_DEVICE_ITERATIONS = 12,
    /* The flight recorder (flight.h); absent where it is off. */
    ARGUS_SECTION_FLIGHT = 13, /* a ring for each enum argus_flight_writer */
    ARGUS_SECTION_FLIGHT_EVENTS = 14,
    ARGUS_SECTION_FLIGHT_NAMES = 15,
    ARGUS_SECTION_FLIGHT_KERNELS = 16,
    ARGUS_SECTION_FLIGHT_KERNEL_NAMES = 17,
    /* The stack sampler (stack_sampler.h); absent where it is off. */
    ARGUS_SECTION_STACKS = 18,
    ARGUS_SECTION_STACK_GENERATIONS = 19,
    ARGUS_SECTION_WORK_ITERATIONS = 20,
};

enum argus_kind {
    ARGUS_KIND_COMPUTE = 0,
    ARGUS_KIND_HOST = 1,
    ARGUS_KIND_COMMUNICATION = 2,
    ARGUS_KIND_MIXED = 3,
};

enum argus_phase_flag {
    ARGUS_PHASE_DATA_DEPENDENT = 1, /* how long it takes depends on the rank's data */
};

enum argus_run_state {
    ARGUS_STATE_RUNNING = 1,
    ARGUS_STATE_ENDED = 2,  /* a clean end */
    ARGUS_STATE_FAILED = 3, /* an uncaught exception ended the rank */
};

/* How kernels find the phase that launched them (native/kernels/marks.h). */
enum argus_attribution {
    ARGUS_ATTRIBUTION_UNDECIDED = 0, /* no kernel yet */
    ARGUS_ATTRIBUTION_NONE = 1,
    ARGUS_ATTRIBUTION_MEMSET = 2,
    ARGUS_ATTRIBUTION_CALL = 3,
    ARGUS_ATTRIBUTION_API = 4,
};

enum argus_flight_writer {
    ARGUS_FLIGHT_TRACER = 0, /* phases, collectives, iterations, pauses */
    ARGUS_FLIGHT_KERNEL = 1, /* what ran on the device */
    ARGUS_FLIGHT_WRITERS = 2,
};

enum argus_flight_type {
    ARGUS_FLIGHT_PHASE = 1,      /* name: index of the phase; value: exclusive nanoseconds */
    ARGUS_FLIGHT_COLLECTIVE = 2, /* name: index of the collective; lane: lowest bits of its sequence
                                  * number; value: bytes of payload */
    ARGUS_FLIGHT_ITERATION = 3,  /* value: its number, as the user counts */
    ARGUS_FLIGHT_PAUSE = 4,      /* name: of this ring's names */
    ARGUS_FLIGHT_ON_DEVICE = 5,  /* kernel, copy or memset.  detail: enum argus_kernel_class; name: of
                                  * this ring's names, or ARGUS_FLIGHT_NO_NAME; lane: stream;
                                  * value: device << 32 | correlation id */
};

/* What the training thread did at a sample of its stack. */
enum argus_stack_category {
    ARGUS_STACK_TRAINING = 0,
    ARGUS_STACK_KERNEL_LAUNCH,
    ARGUS_STACK_DEVICE_SYNC,
    ARGUS_STACK_COLLECTIVE_WAIT,
    ARGUS_STACK_DATA_LOADING,
    ARGUS_STACK_GC,
    ARGUS_STACK_JIT_COMPILE,
    ARGUS_STACK_CHECKPOINT,
    ARGUS_STACK_OTHER,
    ARGUS_STACK_CATEGORY_END,
};

struct argus_section {
    uint32_t id;
    uint32_t record_bytes;
    uint32_t records;
    uint32_t reserved;
    uint64_t offset; /* from the start of the file */
};

struct argus_header {
    char magic[8]; /* written last: a file without it is not ready */
    uint32_t layout_version;
    uint32_t byte_order;
    uint32_t header_bytes;
    uint32_t sections;
    uint64_t total_bytes;
    uint64_t incarnation;    /* CLOCK_REALTIME when the rank created the segment */
    uint64_t created;        /* CLOCK_MONOTONIC of the same moment */
    char writer_version[32]; /* of the package */
    struct argus_section section[ARGUS_MAX_SECTIONS];
};

/* -1 where unknown; empty text where unknown. */
struct argus_identity {
    uint64_t seq;
    int32_t rank;
    int32_t local_rank;
    int32_t world_size;
    int32_t attempt;
    int32_t dp, tp, pp, cp, ep;
    int32_t reserved;
    char run_id[128];
    char role[64];
    char node[128];
    char gpu_uuid[64];
    char pci_bus_id[32];
};

struct argus_state {
    uint64_t run_state;       /* enum argus_run_state */
    uint64_t iterations;      /* iterations completed since this incarnation began */
    uint64_t last_iteration;  /* number of the last completed one */
    uint64_t last_iteration_end; /* 0: none completed yet */
    /* Innermost open phase: index << 56 | begin (lowest 56 bits); all ones: none. */
    uint64_t open_phase;
    uint64_t phases_used;     /* records of ARGUS_SECTION_PHASES in use, without "other" */
    uint64_t collectives_used;
    uint64_t work_used;
    uint64_t sources_used;
    uint64_t pause_begin;     /* 0: no declared pause is open */
    char pause_kind[32];      /* stable while pause_begin is not 0 */
    uint64_t iteration_sum;   /* cumulative, over completed iterations, */
    uint64_t busy_sum;        /* for the summaries' _sum */
};

struct argus_histogram {
    uint64_t seq;
    uint64_t sum; /* nanoseconds */
    uint64_t bucket[ARGUS_HISTOGRAM_BUCKETS];
};

struct argus_phase {
    char name[64];
    uint64_t kind;
    uint64_t flags;            /* enum argus_phase_flag, added up */
    struct argus_histogram seconds; /* exclusive, one observation per occurrence */
};

/* In every record of ARGUS_SECTION_COLLECTIVES. */
struct argus_collective {
    char op[32];
    char group[16];
    char group_id[64];
    uint64_t phase;      /* index of the communication phase that holds its time */
    int64_t members;     /* -1 unknown */
    int64_t nodes;       /* -1 unknown */
    uint64_t enqueued;   /* sequence numbers, within (group, group_id) */
    uint64_t completed;
    uint64_t bytes;      /* cumulative payload */
    struct argus_histogram seconds; /* as this rank saw it, inclusive */
};

/* One collective within one iteration. */
struct argus_iteration_collective {
    uint64_t fastest;      /* nanoseconds of one occurrence */
    uint64_t typical;      /* median of the occurrences */
    uint64_t occurrences;  /* 0: it did not occur */
    double best_bandwidth; /* bytes per second; 0: payload unknown */
};

/* Slot i of the ring holds iteration n of this incarnation (counted from 0)
 * where n % records == i. */
struct argus_iteration {
    uint64_t seq;
    uint64_t ordinal;   /* n + 1; 0: never written */
    uint64_t iteration; /* its number, as the user counts */
    uint64_t end;       /* CLOCK_MONOTONIC */
    uint64_t wall;
    uint64_t busy;      /* union of compute and host time */
    uint64_t phase[ARGUS_MAX_PHASES]; /* exclusive nanoseconds in this iteration */
    struct argus_iteration_collective collective[ARGUS_MAX_COLLECTIVES];
};

struct argus_work {
    char unit[32];
    char phase[64]; /* empty: the iteration's own */
    double total;
};

/* Work done in the iteration of the same slot and ordinal of
 * ARGUS_SECTION_ITERATIONS, by record of ARGUS_SECTION_WORK. */
struct argus_work_iteration {
    uint64_t seq;
    uint64_t ordinal; /* n + 1; 0: never written */
    double amount[ARGUS_MAX_WORK];
};

/* What the tracer says about itself, by source ("phases", later "kernels", …). */
struct argus_source {
    char name[32];
    uint64_t enabled;
    uint64_t events;
    uint64_t dropped;
    uint64_t cost;       /* nanoseconds that the source itself took */
    uint64_t last_event; /* CLOCK_MONOTONIC; 0: none */
};

/* ---- the device's side, written by the kernel library (native/kernels/) ---- */

/* One class of kernels; everything but the name is guarded by seconds.seq. */
struct argus_kernel {
    char name[32];
    uint64_t window_count; /* kernels in the window of iterations; 0: none */
    uint64_t window_quantile[ARGUS_KERNEL_QUANTILES]; /* nanoseconds of one kernel */
    struct argus_histogram seconds;
};

struct argus_device {
    uint64_t classes_used; /* records of ARGUS_SECTION_KERNELS in use */
    uint64_t attribution;  /* enum argus_attribution */
    uint64_t records;      /* kernels, copies and memsets that were counted */
    uint64_t iterations;   /* ordinal of the last one whose records are complete; 0: none */
    uint64_t incomplete;   /* iterations that can't be told, for records or marks were missing */
    uint64_t gaps;         /* how often another profiler took CUPTI */
    uint64_t gap;          /* nanoseconds of that */
    uint64_t jit;          /* nanoseconds of CUDA's own compilation */
    uint64_t busy;         /* nanoseconds, over the iterations that could be told */
    uint64_t marks;        /* boundaries marked on the device */
    uint64_t memory;       /* bytes of record buffers ever in use */
    /* Records lost, by cause: all of it is in the source's `dropped`. */
    uint64_t dropped_cupti;   /* CUPTI had no buffer */
    uint64_t dropped_time;    /* no or impossible time stamps */
    uint64_t dropped_clock;   /* the clock changed while the buffer was filled */
    uint64_t dropped_late;    /* came after their iteration was complete */
    uint64_t dropped_pending; /* too many of one iteration */
};

/* One phase on the device.  The histogram has one observation per occurrence:
 * computing, or communicating where that is the phase's kind; in the record
 * ARGUS_DEVICE_OUTSIDE it is gpu_idle, one observation per iteration. */
struct argus_device_phase {
    struct argus_histogram seconds;
    uint64_t compute;       /* nanoseconds, over the iterations that could be told */
    uint64_t communication;
};

/* What the device did in the iteration of the same slot and ordinal of
 * ARGUS_SECTION_ITERATIONS; nanoseconds. */
struct argus_device_iteration {
    uint64_t seq;
    uint64_t ordinal; /* n + 1; 0: never written */
    uint64_t attributed; /* 0: compute and communication below are all in ARGUS_DEVICE_OUTSIDE */
    uint64_t idle; /* iteration minus all kernels and copies minus collectives that wait on the host */
    uint64_t busy; /* union of computing kernels, host phases and idle */
    uint64_t jit;  /* CUDA's own compilation */
    /* By the phase that launched them: union of kernels and copies. */
    uint64_t compute[ARGUS_DEVICE_PHASES];
    uint64_t communication[ARGUS_DEVICE_PHASES];
};

/* ---- the flight recorder: the last events as they were ---- */

/* Event n is in record n % records of the ring's section of events.  Those from
 * `head` - records + 1 on are whole: the one before may be giving way to event
 * `head`. */
struct argus_flight_ring {
    uint64_t head;  /* events written since the start */
    uint64_t names; /* records of the ring's section of names in use */
};

struct argus_flight_event {
    uint64_t begin;    /* CLOCK_MONOTONIC */
    uint64_t duration;
    /* From the lowest bit: type (8 bits, enum argus_flight_type), detail (8),
     * name (16), lane (32). */
    uint64_t what;
    uint64_t value;
};

struct argus_flight_name {
    char text[128];
};

/* ---- the stack sampler: where Python was, of late ---- */

struct argus_stacks {
    uint64_t interval; /* nanoseconds that one count stands for */
    uint64_t samples[ARGUS_STACK_CATEGORIES]; /* of the training thread, by enum argus_stack_category */
};

/* A function with those that called it: its parents are nodes before it. */
struct argus_stack_node {
    uint32_t parent;   /* index + 1; 0: none, it is the name of a group of threads */
    uint32_t name;     /* where its text begins, which ends with a zero byte */
    uint32_t line;     /* of the last sample that ended here */
    uint32_t category; /* the same's, enum argus_stack_category */
    uint64_t samples;  /* that ended here */
};

/* The stacks of a minute or less.  Nodes and text are only added, until the
 * record is used again: then its ordinal is 0 first, and another one after. */
struct argus_stack_generation {
    uint64_t ordinal; /* counts generations from 1; 0: none is here */
    uint64_t begin;   /* CLOCK_MONOTONIC */
    uint64_t end;     /* the last sample's; 0: none yet */
    uint64_t nodes;   /* in use */
    uint64_t text;    /* bytes in use */
    uint64_t cut;     /* samples of which the inner functions found no room */
    struct argus_stack_node node[ARGUS_STACK_NODES];
    char names[ARGUS_STACK_TEXT];
};

#endif
