/* The stacks of the last minutes in a segment, as trees of functions with their
 * counts: one tree for each generation of a minute or less, of which the oldest
 * gives way.  Bounded in memory and time; one caller at a time. */
#ifndef ARGUS_STACK_STORE_H
#define ARGUS_STACK_STORE_H

#include "segment.h"
#include "stack_categories.h"

#define ARGUS_STACK_NAMES 1024 /* of one generation */
#define ARGUS_STACK_NO_NAME ARGUS_STACK_NAMES

/* A writer's private memory: nothing that is read back from the mapping decides
 * where to write. */
struct argus_stack_store {
    struct argus_stack_generation *generations;
    struct argus_stack_generation *current; /* NULL: none yet */
    const struct argus_stack_patterns *patterns;
    uint64_t ordinal, begin;
    int full;
    unsigned names, nodes;
    uint32_t text;
    struct {
        uint32_t hash, offset;
        uint16_t length;
        struct argus_stack_match match;
    } name[ARGUS_STACK_NAMES];
    struct {
        uint16_t parent, name; /* parent: index + 1 */
        uint64_t samples;
    } node[ARGUS_STACK_NODES];
    /* Open addressing; index + 1. */
    uint16_t name_slots[2 * ARGUS_STACK_NAMES];
    uint16_t node_slots[4096];
};

void argus_stack_store_open(struct argus_stack_store *store, struct argus_stack_generation *generations,
                            const struct argus_stack_patterns *patterns);

/* To be called before a sample: begins another generation when it is time. */
void argus_stack_store_turn(struct argus_stack_store *store, uint64_t now);

/* Index of a function's name in the generation; ARGUS_STACK_NO_NAME: no room. */
unsigned argus_stack_store_name(struct argus_stack_store *store, const char *text, size_t length);
struct argus_stack_match argus_stack_store_match(const struct argus_stack_store *store, unsigned name);

/* Counts a stack, innermost function first; `group` is the name of its threads. */
void argus_stack_store_add(struct argus_stack_store *store, uint64_t now, const char *group,
                           const unsigned *names, unsigned depth, uint32_t line,
                           enum argus_stack_category category, uint64_t weight);

#endif
