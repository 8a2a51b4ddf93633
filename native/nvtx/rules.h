/* What a range means: rules by its name, the first that fits. */
#ifndef ARGUS_NVTX_RULES_H
#define ARGUS_NVTX_RULES_H

#include <stdint.h>

#include "patterns.h"

#define ARGUS_NVTX_NAME_MAX 512 /* bytes of a range's name that are looked at */
#define ARGUS_NVTX_RULE_NONE (-1)
#define ARGUS_NVTX_RULES_MAX 384 /* the user's and ARGUS's own */

enum argus_nvtx_type {
    ARGUS_NVTX_IGNORE = 0,
    ARGUS_NVTX_PHASE,
    ARGUS_NVTX_ITERATION,
    ARGUS_NVTX_PAUSE,
};

struct argus_nvtx_rule {
    enum argus_nvtx_type type;
    uint64_t kind;   /* of a phase: enum argus_kind */
    int last;        /* the phase is an iteration's last one */
    int assumed;     /* ARGUS's own rule: it doesn't know what the program does in there */
    int any_domain;
    char first;      /* a name begins with it; 0: nobody knows */
    size_t length;   /* of name */
    char name[64];   /* of the phase, or the kind of pause */
    struct argus_pattern pattern, domain;
};

struct argus_nvtx_rules {
    size_t used;
    struct argus_nvtx_rule rule[ARGUS_NVTX_RULES_MAX]; /* the user's first */
};

/* The user's rules (path may be NULL) and then ARGUS's own; NULL without memory.
 * `complaint` is as argus_read_patterns gives it. */
struct argus_nvtx_rules *argus_nvtx_rules_read(const char *path, char *complaint, size_t size);

/* ARGUS's own, as texts: target, pattern, target, …; NULL ends them. */
extern const char *const argus_nvtx_defaults[];

/* The part of a range's name that says what it is, at most ARGUS_NVTX_NAME_MAX
 * bytes: without the numbers and shapes that torch's emit_nvtx appends. */
size_t argus_nvtx_name_length(const char *name);

/* Index of the rule for a range, ARGUS_NVTX_RULE_NONE where there is none. */
int argus_nvtx_find(const struct argus_nvtx_rules *rules, const char *domain, size_t domain_length,
                    const char *name, size_t length);

#endif
