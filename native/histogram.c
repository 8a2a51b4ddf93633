#include "histogram.h"

#include <string.h>

/* Mantissa bits of 2^(j/8), j = 0..7, rounded to the nearest double: the
 * boundaries of schema 3 inside one octave. */
static const uint64_t boundary[8] = {
    0x0000000000000, 0x172b83c7d517b, 0x306fe0a31b715, 0x4bfdad5362a27,
    0x6a09e667f3bcd, 0x8ace5422aa0db, 0xae89f995ad3ad, 0xd5818dcfba487,
};

unsigned argus_histogram_index(uint64_t nanoseconds) {
    double seconds = (double)nanoseconds / 1e9;
    uint64_t bits;
    memcpy(&bits, &seconds, sizeof bits);
    int exponent = (int)(bits >> 52) - 1023;
    if (exponent < ARGUS_HISTOGRAM_MIN_EXPONENT)
        return 0;
    if (exponent > ARGUS_HISTOGRAM_MAX_EXPONENT)
        return ARGUS_HISTOGRAM_BUCKETS - 1;
    uint64_t mantissa = bits & 0xfffffffffffff;
    unsigned above = 0;
    for (int j = 0; j < 8; j++)
        above += mantissa > boundary[j];
    /* 2^exponent itself is the upper bound of bucket (exponent - min) * 8. */
    unsigned index = (unsigned)(exponent - ARGUS_HISTOGRAM_MIN_EXPONENT) * 8 + above;
    return index < ARGUS_HISTOGRAM_BUCKETS ? index : ARGUS_HISTOGRAM_BUCKETS - 1;
}
