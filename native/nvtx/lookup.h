/* From a range's name to its rule. */
#ifndef ARGUS_NVTX_LOOKUP_H
#define ARGUS_NVTX_LOOKUP_H

#include "events.h"
#include "thread.h"

/* ARGUS_NVTX_RULE_NONE where there is none, and where it says to ignore the range. */
int argus_nvtx_rule_for(struct argus_nvtx_thread *thread, uint32_t domain, struct argus_nvtx_message message);

/* Keeps the name of ranges that have no rule, so that the user can write one. */
void argus_nvtx_remember(uint64_t hash, const char *text, size_t length);

/* The number at the end of a name, as in "iteration 17"; 0: there is none. */
int argus_nvtx_number(struct argus_nvtx_message message, uint64_t *number);

#endif
