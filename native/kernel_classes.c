/* From a kernel's name to its class. */
#include <string.h>

#include "kernel_text.h"

static const char *const names[ARGUS_KERNEL_CLASSES] = {
    [ARGUS_KERNEL_GEMM] = "gemm",
    [ARGUS_KERNEL_ATTENTION] = "attention",
    [ARGUS_KERNEL_NORMALIZATION] = "normalization",
    [ARGUS_KERNEL_ELEMENTWISE] = "elementwise",
    [ARGUS_KERNEL_REDUCTION] = "reduction",
    [ARGUS_KERNEL_EMBEDDING] = "embedding",
    [ARGUS_KERNEL_OPTIMIZER] = "optimizer",
    [ARGUS_KERNEL_MOE] = "moe",
    [ARGUS_KERNEL_MEMCPY] = "memcpy",
    [ARGUS_KERNEL_MEMSET] = "memset",
    [ARGUS_KERNEL_ALL_REDUCE] = "communication_all_reduce",
    [ARGUS_KERNEL_REDUCE_SCATTER] = "communication_reduce_scatter",
    [ARGUS_KERNEL_ALL_GATHER] = "communication_all_gather",
    [ARGUS_KERNEL_ALL_TO_ALL] = "communication_all_to_all",
    [ARGUS_KERNEL_BROADCAST] = "communication_broadcast",
    [ARGUS_KERNEL_REDUCE] = "communication_reduce",
    [ARGUS_KERNEL_SEND_RECV] = "communication_send_recv",
    [ARGUS_KERNEL_COMMUNICATION_OTHER] = "communication_other",
    [ARGUS_KERNEL_OTHER] = "other",
};

const char *argus_kernel_class_name(enum argus_kernel_class kernel_class) {
    return names[kernel_class < ARGUS_KERNEL_CLASSES ? kernel_class : ARGUS_KERNEL_OTHER];
}

enum argus_kernel_class argus_kernel_class_find(const char *text, size_t length) {
    for (int i = 0; i < ARGUS_KERNEL_CLASSES; i++)
        if (strlen(names[i]) == length && memcmp(names[i], text, length) == 0)
            return (enum argus_kernel_class)i;
    return ARGUS_KERNEL_CLASSES;
}

static int matches_any(const char *text, size_t length, const char *patterns) {
    while (*patterns) {
        size_t size = strcspn(patterns, " ");
        if (size && argus_match(text, length, patterns, size))
            return 1;
        patterns += size;
        patterns += *patterns == ' ';
    }
    return 0;
}

enum argus_kernel_class argus_kernel_classify(const char *text, const struct argus_kernel_patterns *patterns) {
    struct argus_kernel_name name;
    argus_kernel_name_read(&name, text);
    enum argus_kernel_class found = argus_kernel_patterns_find(patterns, &name);
    for (size_t i = 0; i < argus_kernel_rule_count && found == ARGUS_KERNEL_CLASSES; i++) {
        const struct argus_kernel_rule *rule = &argus_kernel_rules[i];
        const char *where = rule->where == ARGUS_IN_HEAD        ? name.head
                            : rule->where == ARGUS_IN_ARGUMENTS ? name.whole + name.arguments
                                                                : name.whole;
        size_t length = rule->where == ARGUS_IN_HEAD        ? name.head_length
                        : rule->where == ARGUS_IN_ARGUMENTS ? name.length - name.arguments
                                                            : name.length;
        if (matches_any(where, length, rule->patterns))
            found = rule->kernel_class;
    }
    return found == ARGUS_KERNEL_CLASSES ? ARGUS_KERNEL_OTHER : found;
}
