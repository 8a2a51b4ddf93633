#include "names.h"

#include <cstring>

namespace argus {
namespace {

uint64_t digest_of(const char *name) {
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    for (; *name != '\0'; name++)
        hash = (hash ^ static_cast<unsigned char>(*name)) * 0x100000001b3u;
    return hash;
}

} // namespace

void Names::forget() {
    std::memset(static_cast<void *>(entry_), 0, sizeof entry_);
    used_ = 0;
}

void Names::record_in(struct argus_flight *flight) {
    flight_ = flight;
    forget(); /* for the places among the recorder's names */
}

Names::Known Names::look(Entry *entry, const char *name) {
    uint64_t digest = digest_of(name);
    if (entry->name == name && entry->digest == digest) {
        entry->trust = kRecheck;
        return entry->known;
    }
    if (entry->name == nullptr && used_ == kNames / 2) {
        forget();
        entry = find(name);
    }
    if (entry->name == nullptr)
        used_++;
    Known known = {static_cast<uint16_t>(argus_kernel_classify(name, patterns_)), ARGUS_FLIGHT_NO_NAME};
    if (flight_ != nullptr)
        known.flight = static_cast<uint16_t>(argus_flight_intern(flight_, name, std::strlen(name)));
    *entry = {name, guard(name), digest, known, kRecheck};
    return known;
}

} // namespace argus
