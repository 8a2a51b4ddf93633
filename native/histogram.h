/* Exponential histograms: which bucket a duration belongs to, and adding to one. */
#ifndef ARGUS_HISTOGRAM_H
#define ARGUS_HISTOGRAM_H

#include "layout.h"
#include "sequence.h"

/* Index into argus_histogram.bucket of a duration; exact at the boundaries
 * as seconds in double precision, upper bounds inclusive. */
unsigned argus_histogram_index(uint64_t nanoseconds);

static inline void argus_histogram_add(struct argus_histogram *histogram, uint64_t nanoseconds) {
    unsigned index = argus_histogram_index(nanoseconds);
    uint64_t seq = argus_sequence_begin(&histogram->seq);
    argus_store(&histogram->bucket[index], histogram->bucket[index] + 1);
    argus_store(&histogram->sum, histogram->sum + nanoseconds);
    argus_sequence_end(&histogram->seq, seq);
}

#endif
