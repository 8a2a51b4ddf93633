/* From a kernel's name, as the pointer that CUPTI hands out, to its class.
 *
 * Classifying or even hashing a mangled name takes longer than everything else
 * that is done for a record, so the class is remembered by pointer.  CUPTI's
 * strings live as long as their module; a pointer that is used again for
 * another name (a Triton module was unloaded) shows by its first characters at
 * once, by the rest at the latest after kRecheck records. */
#ifndef ARGUS_NAMES_H
#define ARGUS_NAMES_H

#include <cstdint>
#include <cstring>

#include "../flight.h"
#include "../kernel_classes.h"

namespace argus {

constexpr unsigned kNames = 8192;  /* slots; half of them are used, then all is forgotten */
constexpr unsigned kRecheck = 256;

class Names {
  public:
    /* What is known of a name: its class, and its place among the flight
     * recorder's names. */
    struct Known {
        uint16_t kernel_class, flight;
    };

    /* The user's patterns, which go before the built-in rules; may be null. */
    void use(const struct argus_kernel_patterns *patterns) { patterns_ = patterns; }
    /* Where names are recorded from now on; may be null. */
    void record_in(struct argus_flight *flight);

    Known know(const char *name) {
        Entry *entry = find(name);
        if (entry->name == name && entry->guard == guard(name) && --entry->trust != 0)
            return entry->known;
        return look(entry, name);
    }

    /* know() will be asked soon. */
    void expect(const char *name) const {
        __builtin_prefetch(name);
        __builtin_prefetch(&entry_[slot_of(name)]);
    }

  private:
    struct alignas(32) Entry { /* two to a cache line, none across two */
        const char *name;
        uint64_t guard;  /* the first 8 characters */
        uint64_t digest; /* of all of it */
        Known known;
        uint32_t trust; /* records until the digest is compared again */
    };

    static uint64_t guard(const char *name);
    static unsigned slot_of(const char *name);
    Entry *find(const char *name);
    void forget();
    Known look(Entry *entry, const char *name);

    const struct argus_kernel_patterns *patterns_ = nullptr;
    struct argus_flight *flight_ = nullptr;
    Entry entry_[kNames] = {};
    unsigned used_ = 0;
};

/* Fibonacci hashing: pointers differ in their middle bits. */
inline unsigned Names::slot_of(const char *name) {
    return static_cast<unsigned>(reinterpret_cast<uintptr_t>(name) * 0x9e3779b97f4a7c15u >> (64 - 13));
}

inline Names::Entry *Names::find(const char *name) {
    unsigned at = slot_of(name);
    while (entry_[at].name != nullptr && entry_[at].name != name)
        at = (at + 1) % kNames;
    return &entry_[at];
}

inline uint64_t Names::guard(const char *name) {
    uint64_t value = 0;
#ifndef __SANITIZE_ADDRESS__
    /* One load where it stays within the name's page, so that it cannot fault;
     * what follows the name's end does not count. */
    if ((reinterpret_cast<uintptr_t>(name) & 4095) <= 4088) {
        std::memcpy(&value, name, sizeof value);
        uint64_t zeroes = (value - 0x0101010101010101u) & ~value & 0x8080808080808080u;
        return zeroes == 0 ? value : value & (((zeroes & -zeroes) >> 7) - 1);
    }
#endif
    for (unsigned i = 0; i < 8 && name[i] != '\0'; i++)
        value |= static_cast<uint64_t>(static_cast<unsigned char>(name[i])) << (8 * i);
    return value;
}

} // namespace argus

#endif
