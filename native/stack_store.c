#include "stack_store.h"

#include <string.h>

#include "sequence.h"

#define GENERATION_NS 60000000000u
#define LEAST_NS 15000000000u /* a full one stays so long, or a storm of new functions would leave nothing else */
#define COUNT(array) (sizeof(array) / sizeof *(array))

_Static_assert(COUNT(((struct argus_stack_store *)0)->node_slots) > 2 * ARGUS_STACK_NODES, "half of it stays empty");
_Static_assert((ARGUS_STACK_NAMES & (ARGUS_STACK_NAMES - 1)) == 0, "a power of two");

void argus_stack_store_open(struct argus_stack_store *store, struct argus_stack_generation *generations,
                            const struct argus_stack_patterns *patterns) {
    memset(store, 0, sizeof *store);
    store->generations = generations;
    store->patterns = patterns;
}

static void begin_generation(struct argus_stack_store *store, uint64_t now) {
    struct argus_stack_generation *next = &store->generations[store->ordinal % ARGUS_STACK_GENERATIONS];
    argus_store(&next->ordinal, 0);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    argus_store(&next->begin, now);
    argus_store(&next->end, 0);
    argus_store(&next->nodes, 0);
    argus_store(&next->text, 0);
    argus_store(&next->cut, 0);
    argus_publish(&next->ordinal, ++store->ordinal);
    store->current = next;
    store->begin = now;
    store->full = 0;
    store->names = store->nodes = 0;
    store->text = 0;
    memset(store->name_slots, 0, sizeof store->name_slots);
    memset(store->node_slots, 0, sizeof store->node_slots);
}

void argus_stack_store_turn(struct argus_stack_store *store, uint64_t now) {
    if (store->current == NULL || now - store->begin >= GENERATION_NS ||
        (store->full && now - store->begin >= LEAST_NS))
        begin_generation(store, now);
}

static uint32_t hash_of(const char *text, size_t length) {
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)text[i]) * 16777619u;
    return hash;
}

unsigned argus_stack_store_name(struct argus_stack_store *store, const char *text, size_t length) {
    struct argus_stack_generation *its = store->current;
    char clean[ARGUS_STACK_NAME_MAX + 1];
    argus_copy_text(clean, sizeof clean, text, length);
    length = strlen(clean);
    uint32_t hash = hash_of(clean, length);
    size_t mask = COUNT(store->name_slots) - 1, at = hash & mask;
    for (; store->name_slots[at] != 0; at = (at + 1) & mask) {
        unsigned name = store->name_slots[at] - 1u;
        if (store->name[name].hash == hash && store->name[name].length == length &&
            memcmp(its->names + store->name[name].offset, clean, length) == 0)
            return name;
    }
    if (store->names == ARGUS_STACK_NAMES || store->text + length + 1 > sizeof its->names) {
        store->full = 1;
        return ARGUS_STACK_NO_NAME;
    }
    unsigned name = store->names++;
    store->name[name].hash = hash;
    store->name[name].length = (uint16_t)length;
    store->name[name].offset = store->text;
    store->name[name].match = argus_stack_match(clean, length, store->patterns);
    memcpy(its->names + store->text, clean, length + 1);
    store->text += (uint32_t)length + 1;
    argus_publish(&its->text, store->text);
    store->name_slots[at] = (uint16_t)(name + 1);
    return name;
}

struct argus_stack_match argus_stack_store_match(const struct argus_stack_store *store, unsigned name) {
    return name < store->names ? store->name[name].match
                               : (struct argus_stack_match){ARGUS_STACK_NONE, ARGUS_STACK_NONE};
}

/* The function below a node; parent and result: index + 1.  0: no room. */
static unsigned step(struct argus_stack_store *store, unsigned parent, unsigned name) {
    size_t mask = COUNT(store->node_slots) - 1;
    size_t at = (parent * 2654435761u ^ name * 40503u) & mask;
    for (; store->node_slots[at] != 0; at = (at + 1) & mask) {
        unsigned node = store->node_slots[at] - 1u;
        if (store->node[node].parent == parent && store->node[node].name == name)
            return node + 1;
    }
    if (store->nodes == ARGUS_STACK_NODES) {
        store->full = 1;
        return 0;
    }
    unsigned node = store->nodes++;
    store->node[node].parent = (uint16_t)parent;
    store->node[node].name = (uint16_t)name;
    store->node[node].samples = 0;
    store->current->node[node] =
        (struct argus_stack_node){.parent = parent, .name = store->name[name].offset};
    argus_publish(&store->current->nodes, store->nodes);
    store->node_slots[at] = (uint16_t)(node + 1);
    return node + 1;
}

void argus_stack_store_add(struct argus_stack_store *store, uint64_t now, const char *group,
                           const unsigned *names, unsigned depth, uint32_t line,
                           enum argus_stack_category category, uint64_t weight) {
    struct argus_stack_generation *its = store->current;
    unsigned name = argus_stack_store_name(store, group, strlen(group));
    unsigned node = name == ARGUS_STACK_NO_NAME ? 0 : step(store, 0, name);
    unsigned left = depth;
    while (node != 0 && left > 0) {
        name = names[left - 1];
        unsigned next = name == ARGUS_STACK_NO_NAME ? 0 : step(store, node, name);
        if (next == 0)
            break;
        node = next;
        left--;
    }
    argus_store(&its->end, now);
    if (node == 0 || left > 0)
        argus_store(&its->cut, its->cut + weight);
    if (node == 0)
        return;
    struct argus_stack_node *record = &its->node[node - 1];
    __atomic_store_n(&record->line, left == 0 ? line : 0, __ATOMIC_RELAXED);
    __atomic_store_n(&record->category, (uint32_t)category, __ATOMIC_RELAXED);
    store->node[node - 1].samples += weight;
    argus_store(&record->samples, store->node[node - 1].samples);
}
