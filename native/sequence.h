/* How words reach readers in other processes: single aligned stores, and
 * sequence locks around records that must be read as a whole.
 *
 * There is one writer at a time (the GIL's holder), so loads of its own words
 * need no atomics. */
#ifndef ARGUS_SEQUENCE_H
#define ARGUS_SEQUENCE_H

#include <stdint.h>

static inline void argus_store(uint64_t *word, uint64_t value) {
    __atomic_store_n(word, value, __ATOMIC_RELAXED);
}

/* After everything written before it. */
static inline void argus_publish(uint64_t *word, uint64_t value) {
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

static inline void argus_store_double(double *word, double value) {
    __atomic_store(word, &value, __ATOMIC_RELAXED);
}

/* Returns what argus_sequence_end needs.  A writer killed in between leaves an
 * odd number for good; readers give up on that record. */
static inline uint64_t argus_sequence_begin(uint64_t *seq) {
    uint64_t odd = *seq | 1;
    __atomic_store_n(seq, odd, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    return odd;
}

static inline void argus_sequence_end(uint64_t *seq, uint64_t odd) {
    __atomic_store_n(seq, odd + 1, __ATOMIC_RELEASE);
}

#endif
