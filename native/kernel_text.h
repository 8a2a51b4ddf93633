/* Between the parts of the kernel classifier: names and rules as text. */
#ifndef ARGUS_KERNEL_TEXT_H
#define ARGUS_KERNEL_TEXT_H

#include "kernel_classes.h"
#include "patterns.h"

#define ARGUS_KERNEL_HEAD_MAX 1024

/* A kernel's name in lower case (ASCII only), and its parts. */
struct argus_kernel_name {
    size_t length;      /* of whole */
    size_t head_length; /* of head */
    size_t arguments;   /* where in whole the template arguments and parameters begin */
    char whole[ARGUS_KERNEL_NAME_MAX];
    char head[ARGUS_KERNEL_HEAD_MAX]; /* the function with its namespaces: at::native::reduce_kernel */
};

/* A built-in rule: some patterns, apart by blanks; rules are tried in order. */
enum argus_kernel_where { ARGUS_IN_HEAD, ARGUS_IN_ARGUMENTS, ARGUS_IN_WHOLE };

struct argus_kernel_rule {
    enum argus_kernel_class kernel_class;
    enum argus_kernel_where where;
    const char *patterns;
};

extern const struct argus_kernel_rule argus_kernel_rules[];
extern const size_t argus_kernel_rule_count;

void argus_kernel_name_read(struct argus_kernel_name *name, const char *text);

/* The class that the user's patterns give, or ARGUS_KERNEL_CLASSES. */
enum argus_kernel_class argus_kernel_patterns_find(const struct argus_kernel_patterns *patterns,
                                                   const struct argus_kernel_name *name);

/* Class by name, or ARGUS_KERNEL_CLASSES. */
enum argus_kernel_class argus_kernel_class_find(const char *text, size_t length);

#endif
