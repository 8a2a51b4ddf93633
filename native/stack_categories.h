/* What a stack of Python functions is busy with, by their names.
 *
 * A function's name is `module:qualified.name`, in __main__ the file's name in
 * the module's place.  Python before 3.11 gives no qualified name but the last
 * part of it, so patterns leave room for both. */
#ifndef ARGUS_STACK_CATEGORIES_H
#define ARGUS_STACK_CATEGORIES_H

#include <stddef.h>

#include "layout.h"

#define ARGUS_STACK_NONE ARGUS_STACK_CATEGORY_END
#define ARGUS_STACK_NAME_MAX 200 /* bytes of a name; what is more is cut off */

/* The user's own patterns; read once, never changed. */
struct argus_stack_patterns;

/* As argus_kernel_patterns_read (kernel_classes.h), for lines `category pattern`. */
struct argus_stack_patterns *argus_stack_patterns_read(const char *path, char *complaint, size_t size);
void argus_stack_patterns_free(struct argus_stack_patterns *patterns);

/* What one function says; ARGUS_STACK_NONE: nothing. */
struct argus_stack_match {
    unsigned char own;      /* the first of the user's patterns */
    unsigned char built_in; /* the first built-in rule */
};

struct argus_stack_match argus_stack_match(const char *name, size_t length,
                                           const struct argus_stack_patterns *patterns);

/* The category of a stack, innermost function first.  The user's patterns come
 * first, innermost function first; then the built-in rules in their order,
 * whichever function they are about, but that launching is told by the
 * innermost function alone; then `phase`, what the open phase is called. */
enum argus_stack_category argus_stack_decide(const struct argus_stack_match *matches, size_t depth,
                                             enum argus_stack_category phase);

/* `training`, `kernel_launch`, … */
const char *argus_stack_category_name(enum argus_stack_category category);
/* ARGUS_STACK_NONE where there is none of this name. */
enum argus_stack_category argus_stack_category_find(const char *text, size_t length);

/* A built-in rule; patterns separated by blanks. */
struct argus_stack_rule {
    enum argus_stack_category category;
    const char *patterns;
};
extern const struct argus_stack_rule argus_stack_rules[];
extern const size_t argus_stack_rule_count;

#endif
