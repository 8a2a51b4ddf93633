/* What a GPU kernel does, by its name: a small fixed set of classes.
 *
 * Used once per distinct name, in the training process too: bounded work on a
 * bounded part of the name, no allocation, no locks, no failure.  Names are
 * taken as CUPTI delivers them (mangled C++), demangled (Kineto, nsys), or
 * plain (cuBLAS, Triton, NCCL).
 */
#ifndef ARGUS_KERNEL_CLASSES_H
#define ARGUS_KERNEL_CLASSES_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The order is part of the segment's layout: append only. */
enum argus_kernel_class {
    ARGUS_KERNEL_GEMM = 0,
    ARGUS_KERNEL_ATTENTION,
    ARGUS_KERNEL_NORMALIZATION,
    ARGUS_KERNEL_ELEMENTWISE,
    ARGUS_KERNEL_REDUCTION,
    ARGUS_KERNEL_EMBEDDING,
    ARGUS_KERNEL_OPTIMIZER,
    ARGUS_KERNEL_MOE,
    ARGUS_KERNEL_MEMCPY,
    ARGUS_KERNEL_MEMSET,
    ARGUS_KERNEL_ALL_REDUCE, /* from here on: communication */
    ARGUS_KERNEL_REDUCE_SCATTER,
    ARGUS_KERNEL_ALL_GATHER,
    ARGUS_KERNEL_ALL_TO_ALL,
    ARGUS_KERNEL_BROADCAST,
    ARGUS_KERNEL_REDUCE,
    ARGUS_KERNEL_SEND_RECV,
    ARGUS_KERNEL_COMMUNICATION_OTHER, /* up to here */
    ARGUS_KERNEL_OTHER,
    ARGUS_KERNEL_CLASSES,
};

#define ARGUS_KERNEL_NAME_MAX 4096 /* bytes of a name that are looked at */

/* The user's own patterns; read once, never changed, safe to share among threads. */
struct argus_kernel_patterns;

/* Reads a file of lines `class pattern`; `#` begins a comment.  Returns the
 * good lines (to be given to argus_kernel_patterns_free), or NULL when there is
 * none.  `complaint` holds what is wrong, with file and line and the mend, or
 * is empty; it always ends with a zero byte. */
struct argus_kernel_patterns *argus_kernel_patterns_read(const char *path, char *complaint, size_t size);
void argus_kernel_patterns_free(struct argus_kernel_patterns *patterns);

/* The class of a kernel; `patterns` (may be NULL) go before the built-in rules. */
enum argus_kernel_class argus_kernel_classify(const char *name, const struct argus_kernel_patterns *patterns);

/* `gemm`, …, `communication_all_reduce`, …, `other`. */
const char *argus_kernel_class_name(enum argus_kernel_class kernel_class);

static inline int argus_kernel_is_communication(enum argus_kernel_class kernel_class) {
    return kernel_class >= ARGUS_KERNEL_ALL_REDUCE && kernel_class <= ARGUS_KERNEL_COMMUNICATION_OTHER;
}

#ifdef __cplusplus
}
#endif

#endif
