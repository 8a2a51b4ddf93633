/* Kernels, copies and memsets whose phase is not known yet, in memory of fixed
 * size. */
#ifndef ARGUS_ENTRIES_H
#define ARGUS_ENTRIES_H

#include <cstddef>
#include <cstdint>

namespace argus {

constexpr size_t kMostEntries = 1 << 18; /* of one iteration, and those ahead of it: 6 MiB */

struct Entry {
    uint64_t start, end; /* CLOCK_MONOTONIC */
    uint32_t correlation;
    uint32_t communication;
};

class Entries {
  public:
    bool reserve();

    size_t size() const { return count_; }
    const Entry &operator[](size_t i) const { return entry_[i]; }
    void clear() { count_ = 0; }
    bool append(const Entry &entry) {
        if (count_ == kMostEntries)
            return false;
        entry_[count_++] = entry;
        return true;
    }
    /* For compaction: those that stay are written over those that go. */
    void keep(size_t at, const Entry &entry) { entry_[at] = entry; }
    void cut(size_t count) { count_ = count; }

    void sort_by_start();

  private:
    Entry *entry_ = nullptr;
    size_t count_ = 0;
};

} // namespace argus

#endif
