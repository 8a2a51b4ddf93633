/* Ranges as the tracer gets them. */
#ifndef ARGUS_NVTX_EVENTS_H
#define ARGUS_NVTX_EVENTS_H

#include <stdint.h>

#include "names.h"

#define ARGUS_NVTX_NAMES 64      /* ranges without a rule that are remembered, */
#define ARGUS_NVTX_NAME_KEPT 128 /* and the bytes of each */

struct argus_nvtx_state {
    struct argus_nvtx_rules *rules; /* NULL: NVTX was not initialised; does not change afterwards */
    char message[1024];             /* what is wrong with the user's rules; empty: nothing */
    uint64_t ranges, ignored, unbalanced, dropped; /* since the process began */
    unsigned names_used;
    char name[ARGUS_NVTX_NAMES][ARGUS_NVTX_NAME_KEPT];
    uint64_t name_hash[ARGUS_NVTX_NAMES];
    double cost_per_range; /* nanoseconds, of one that has no rule; calibrated */
};

/* Everything but rules and cost needs the tracer's lock. */
extern struct argus_nvtx_state argus_nvtx;

/* Generation of the tracer in which the program gives iterations itself: those
 * of NVTX are none then. */
extern unsigned argus_nvtx_outranked;

/* A range's name where it is still text, or a registered string. */
struct argus_nvtx_message {
    const char *text; /* NULL: there is none */
    const struct argus_nvtx_string *string; /* NULL: it is not registered */
};

void argus_nvtx_range_push(uint32_t domain, struct argus_nvtx_message message);
void argus_nvtx_range_pop(uint32_t domain);
/* The range's id; 0 for one without a rule. */
uint64_t argus_nvtx_range_start(uint32_t domain, struct argus_nvtx_message message);
void argus_nvtx_range_end(uint64_t id);
/* A moment; one between iterations is of interest. */
void argus_nvtx_mark(uint32_t domain, struct argus_nvtx_message message);

/* Adds what this thread has not told yet to argus_nvtx.ignored. */
void argus_nvtx_settle(void);

#endif
