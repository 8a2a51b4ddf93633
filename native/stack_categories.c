/* From the functions of a stack to its category. */
#include "stack_categories.h"

#include <stdlib.h>
#include <string.h>

#include "patterns.h"

static const char *const names[ARGUS_STACK_CATEGORY_END] = {
    [ARGUS_STACK_TRAINING] = "training",
    [ARGUS_STACK_KERNEL_LAUNCH] = "kernel_launch",
    [ARGUS_STACK_DEVICE_SYNC] = "device_sync",
    [ARGUS_STACK_COLLECTIVE_WAIT] = "collective_wait",
    [ARGUS_STACK_DATA_LOADING] = "data_loading",
    [ARGUS_STACK_GC] = "gc",
    [ARGUS_STACK_JIT_COMPILE] = "jit_compile",
    [ARGUS_STACK_CHECKPOINT] = "checkpoint",
    [ARGUS_STACK_OTHER] = "other",
};

const char *argus_stack_category_name(enum argus_stack_category category) {
    return names[category < ARGUS_STACK_CATEGORY_END ? category : ARGUS_STACK_OTHER];
}

enum argus_stack_category argus_stack_category_find(const char *text, size_t length) {
    for (int i = 0; i < ARGUS_STACK_CATEGORY_END; i++)
        if (strlen(names[i]) == length && memcmp(names[i], text, length) == 0)
            return (enum argus_stack_category)i;
    return ARGUS_STACK_NONE;
}

/* ---- the user's patterns ---- */

struct argus_stack_patterns {
    size_t count;
    struct {
        enum argus_stack_category category;
        struct argus_pattern pattern;
    } line[ARGUS_PATTERNS_MAX];
};

static const char *take_line(void *target, size_t number, const char *word, size_t length,
                             const struct argus_pattern *pattern) {
    struct argus_stack_patterns *patterns = target;
    enum argus_stack_category category = argus_stack_category_find(word, length);
    if (category == ARGUS_STACK_NONE)
        return "no such category; argus stacks --list names them";
    patterns->line[number].category = category;
    patterns->line[number].pattern = *pattern;
    return NULL;
}

struct argus_stack_patterns *argus_stack_patterns_read(const char *path, char *complaint, size_t size) {
    struct argus_stack_patterns *patterns = malloc(sizeof *patterns);
    if (patterns != NULL)
        patterns->count = argus_read_patterns(path, "category", take_line, patterns, complaint, size);
    if (patterns != NULL && patterns->count == 0) {
        free(patterns);
        patterns = NULL;
    }
    return patterns;
}

void argus_stack_patterns_free(struct argus_stack_patterns *patterns) { free(patterns); }

/* ---- matching ---- */

/* While a module is imported, its name says nothing of what it is for. */
static const char importing[] = ":<module>$";

static int matches_any(const char *text, size_t length, const char *patterns) {
    while (*patterns) {
        size_t size = strcspn(patterns, " ");
        if (argus_match(text, length, patterns, size))
            return 1;
        patterns += size;
        patterns += *patterns == ' ';
    }
    return 0;
}

struct argus_stack_match argus_stack_match(const char *name, size_t length,
                                           const struct argus_stack_patterns *patterns) {
    struct argus_stack_match match = {ARGUS_STACK_NONE, ARGUS_STACK_NONE};
    char text[ARGUS_STACK_NAME_MAX];
    if (length > sizeof text)
        length = sizeof text;
    for (size_t i = 0; i < length; i++)
        text[i] = argus_lower(name[i]);
    for (size_t i = 0; patterns != NULL && i < patterns->count && match.own == ARGUS_STACK_NONE; i++)
        if (argus_match(text, length, patterns->line[i].pattern.text, patterns->line[i].pattern.length))
            match.own = (unsigned char)patterns->line[i].category;
    if (argus_match(text, length, importing, sizeof importing - 1))
        return match;
    for (size_t i = 0; i < argus_stack_rule_count && match.built_in == ARGUS_STACK_NONE; i++)
        if (matches_any(text, length, argus_stack_rules[i].patterns))
            match.built_in = (unsigned char)argus_stack_rules[i].category;
    return match;
}

enum argus_stack_category argus_stack_decide(const struct argus_stack_match *matches, size_t depth,
                                             enum argus_stack_category phase) {
    int found[ARGUS_STACK_NONE + 1] = {0};
    for (size_t i = 0; i < depth; i++)
        if (matches[i].own != ARGUS_STACK_NONE)
            return (enum argus_stack_category)matches[i].own;
    for (size_t i = 0; i < depth; i++)
        found[matches[i].built_in] = 1;
    found[ARGUS_STACK_KERNEL_LAUNCH] = 0;
    for (size_t i = 0; i < argus_stack_rule_count; i++)
        if (found[argus_stack_rules[i].category])
            return argus_stack_rules[i].category;
    int launches = depth != 0 && matches[0].built_in == ARGUS_STACK_KERNEL_LAUNCH;
    return launches && phase == ARGUS_STACK_TRAINING ? ARGUS_STACK_KERNEL_LAUNCH : phase;
}
