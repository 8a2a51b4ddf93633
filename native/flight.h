/* The flight recorder: a ring of a segment's last events, one for each writer.
 *
 * A writer calls one at a time and never waits; old events give way.  Readers
 * in other processes copy the events between two looks at `head` and keep those
 * that were whole all the time (layout.h).  Plain C, for C++ too; needs nothing
 * but layout.h, so that the kernel library can use it without the extension. */
#ifndef ARGUS_FLIGHT_H
#define ARGUS_FLIGHT_H

#include <stddef.h>
#include <stdint.h>

#include "layout.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A ring as its writer sees it, in private memory: nothing that is read back
 * from the mapping decides where to write. */
struct argus_flight {
    struct argus_flight_event *events; /* NULL: there is no ring */
    struct argus_flight_ring *ring;
    struct argus_flight_name *names;
    uint64_t head;
    uint32_t mask; /* number of events, a power of two, less 1 */
    uint32_t most_names, names_used;
    uint32_t digest[ARGUS_FLIGHT_NAMES]; /* of the names in use */
};

/* Events of each ring, 0 for none. */
struct argus_flight_sizes {
    uint32_t events[ARGUS_FLIGHT_WRITERS];
};

/* The largest power of two that is neither above `events` nor above
 * ARGUS_FLIGHT_MOST; 0 for 0. */
uint32_t argus_flight_capacity(uint32_t events);

/* Index of a name in the ring's table, cut to what a record holds; the same
 * again for the same name.  ARGUS_FLIGHT_NO_NAME when all records are taken. */
unsigned argus_flight_intern(struct argus_flight *flight, const char *text, size_t length);

/* Adds an event; there must be a ring. */
static inline void argus_flight_add(struct argus_flight *flight, unsigned type, unsigned detail, unsigned name,
                                    uint32_t lane, uint64_t begin, uint64_t duration, uint64_t value) {
    struct argus_flight_event *event = &flight->events[flight->head & flight->mask];
    uint64_t what = (uint64_t)type | (uint64_t)(detail & 0xff) << 8 | (uint64_t)(name & 0xffff) << 16 |
                    (uint64_t)lane << 32;
    /* Whoever sees a word of this event sees the head of the last one too. */
    __atomic_thread_fence(__ATOMIC_RELEASE);
    __atomic_store_n(&event->begin, begin, __ATOMIC_RELAXED);
    __atomic_store_n(&event->duration, duration, __ATOMIC_RELAXED);
    __atomic_store_n(&event->what, what, __ATOMIC_RELAXED);
    __atomic_store_n(&event->value, value, __ATOMIC_RELAXED);
    __atomic_store_n(&flight->ring->head, ++flight->head, __ATOMIC_RELEASE);
}

#ifdef __cplusplus
}
#endif
#endif
