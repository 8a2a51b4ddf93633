#include "entries.h"

#include <algorithm>

#include "spans.h"

namespace argus {

bool Entries::reserve() {
    if (entry_ == nullptr)
        entry_ = static_cast<Entry *>(reserve_memory(kMostEntries * sizeof(Entry)));
    return entry_ != nullptr;
}

/* A stream's records come in order and streams differ little, so insertion is
 * nearly linear; where it is not, a general sort takes over. */
void Entries::sort_by_start() {
    size_t moves = 0, budget = 16 * count_;
    for (size_t i = 1; i < count_; i++) {
        if (entry_[i - 1].start <= entry_[i].start)
            continue;
        Entry moving = entry_[i];
        size_t at = i;
        do
            entry_[at] = entry_[at - 1];
        while (--at > 0 && entry_[at - 1].start > moving.start);
        entry_[at] = moving;
        moves += i - at;
        if (moves > budget) {
            std::sort(entry_, entry_ + count_, [](const Entry &a, const Entry &b) { return a.start < b.start; });
            return;
        }
    }
}

} // namespace argus
