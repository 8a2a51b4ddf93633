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

unsigned Names::look(Entry *entry, const char *name) {
    uint64_t digest = digest_of(name);
    if (entry->name == name && entry->digest == digest) {
        entry->trust = kRecheck;
        return entry->kernel_class;
    }
    if (entry->name == nullptr && used_ == kNames / 2) {
        std::memset(entry_, 0, sizeof entry_);
        used_ = 0;
        entry = find(name);
    }
    if (entry->name == nullptr)
        used_++;
    *entry = {name, guard(name), digest, argus_kernel_classify(name, patterns_), kRecheck};
    return entry->kernel_class;
}

} // namespace argus
