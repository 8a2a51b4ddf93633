#include "flight.h"

#include <string.h>

uint32_t argus_flight_capacity(uint32_t events) {
    if (events == 0)
        return 0;
    uint32_t capacity = 1;
    while (capacity < ARGUS_FLIGHT_MOST && capacity <= events / 2)
        capacity *= 2;
    return capacity;
}

static uint32_t digest_of(const char *text, size_t length) {
    uint32_t digest = 2166136261u; /* FNV-1a */
    for (size_t i = 0; i < length; i++)
        digest = (digest ^ (unsigned char)text[i]) * 16777619u;
    return digest;
}

unsigned argus_flight_intern(struct argus_flight *flight, const char *text, size_t length) {
    struct argus_flight_name name;
    if (flight->events == NULL)
        return ARGUS_FLIGHT_NO_NAME;
    if (length > sizeof name.text - 1)
        length = sizeof name.text - 1;
    memcpy(name.text, text, length);
    memset(name.text + length, 0, sizeof name.text - length);
    uint32_t digest = digest_of(text, length);
    for (uint32_t i = 0; i < flight->names_used; i++)
        if (flight->digest[i] == digest && memcmp(&flight->names[i], &name, sizeof name) == 0)
            return i;
    if (flight->names_used == flight->most_names)
        return ARGUS_FLIGHT_NO_NAME;
    uint32_t index = flight->names_used++;
    flight->names[index] = name;
    flight->digest[index] = digest;
    __atomic_store_n(&flight->ring->names, flight->names_used, __ATOMIC_RELEASE);
    return index;
}
