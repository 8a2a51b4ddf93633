/* What one thread's ranges need: the stack of its open ones, and which rule a
 * name had last time.  Used by its thread only. */
#ifndef ARGUS_NVTX_THREAD_H
#define ARGUS_NVTX_THREAD_H

#include <stdint.h>

#include "rules.h"

#define ARGUS_NVTX_DEPTH 64  /* open ranges of a rule, and runs of others between them */
#define ARGUS_NVTX_CACHE 256 /* names remembered, a power of two */

/* What a range with a rule has begun. */
struct argus_nvtx_open {
    int rule;            /* ARGUS_NVTX_RULE_NONE: nothing */
    unsigned generation; /* of the tracer, in which it was begun */
    uint32_t token;      /* tells iterations apart */
};

struct argus_nvtx_level {
    struct argus_nvtx_open open;
    uint32_t domain;
    uint32_t run; /* of a level without a rule: how many ranges it stands for */
};

struct argus_nvtx_thread {
    unsigned generation; /* of the tracer, seen last */
    unsigned depth;
    uint64_t overflow; /* ranges that found no level, above all others */
    uint64_t ignored;  /* not yet added to argus_nvtx.ignored */
    struct argus_nvtx_level level[ARGUS_NVTX_DEPTH];
    uint64_t hash[ARGUS_NVTX_CACHE];
    int16_t rule[ARGUS_NVTX_CACHE];
};

/* This thread's, made by the first call; NULL without memory.  Where the thread
 * ends, argus_nvtx_thread_ends() is called. */
struct argus_nvtx_thread *argus_nvtx_thread(void);

/* A level for a range; NULL: there is none, or the range shares one. */
struct argus_nvtx_open *argus_nvtx_push(struct argus_nvtx_thread *thread, uint32_t domain, int rule);

/* Takes the domain's innermost range off; *open is what it has begun.
 * -1: no range is open there. */
int argus_nvtx_pop(struct argus_nvtx_thread *thread, uint32_t domain, struct argus_nvtx_open *open);

/* Ends what the thread left open (events.c). */
void argus_nvtx_thread_ends(struct argus_nvtx_thread *thread);

#endif
