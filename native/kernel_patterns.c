/* The user's own patterns, from a file. */
#include <stdio.h>
#include <stdlib.h>

#include "kernel_text.h"

struct argus_kernel_patterns {
    size_t used;
    enum argus_kernel_class kernel_class[ARGUS_PATTERNS_MAX];
    struct argus_pattern pattern[ARGUS_PATTERNS_MAX];
};

static const char *take(void *target, size_t number, const char *word, size_t length,
                        const struct argus_pattern *pattern) {
    struct argus_kernel_patterns *patterns = target;
    enum argus_kernel_class kernel_class = argus_kernel_class_find(word, length);
    if (kernel_class == ARGUS_KERNEL_CLASSES)
        return "no such class (argus classify --list names them)";
    patterns->kernel_class[number] = kernel_class;
    patterns->pattern[number] = *pattern;
    return NULL;
}

struct argus_kernel_patterns *argus_kernel_patterns_read(const char *path, char *complaint, size_t size) {
    struct argus_kernel_patterns *patterns = malloc(sizeof *patterns);
    if (patterns == NULL) {
        snprintf(complaint, size, "%s: no memory to read it", path);
        return NULL;
    }
    patterns->used = argus_read_patterns(path, "class", take, patterns, complaint, size);
    if (patterns->used == 0) {
        free(patterns);
        return NULL;
    }
    return patterns;
}

void argus_kernel_patterns_free(struct argus_kernel_patterns *patterns) { free(patterns); }

enum argus_kernel_class argus_kernel_patterns_find(const struct argus_kernel_patterns *patterns,
                                                   const struct argus_kernel_name *name) {
    for (size_t i = 0; patterns && i < patterns->used; i++)
        if (argus_match(name->whole, name->length, patterns->pattern[i].text, patterns->pattern[i].length))
            return patterns->kernel_class[i];
    return ARGUS_KERNEL_CLASSES;
}
