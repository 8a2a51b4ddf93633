#include "timeline.h"

#include "../layout.h"
#include "boundaries.h"

namespace argus {
namespace {

/* Merges sorted entries into spans; scratch takes the result's place. */
void merge(Spans *spans, const Entries &entries, Spans *scratch) {
    size_t i = 0, j = 0;
    scratch->clear();
    while (i < spans->size() || j < entries.size()) {
        if (j == entries.size() || (i < spans->size() && (*spans)[i].begin <= entries[j].start)) {
            scratch->append((*spans)[i].begin, (*spans)[i].end);
            i++;
        } else {
            scratch->append(entries[j].start, entries[j].end);
            j++;
        }
    }
    Spans swap = *spans;
    *spans = *scratch;
    *scratch = swap;
}

} // namespace

bool Timeline::reserve() {
    constexpr size_t device = kMostEntries, host = kBoundaries;
    return computing_.reserve(device) && communicating_.reserve(device) && first_.reserve(device) &&
           second_.reserve(device) && host_.reserve(host) && waiting_.reserve(host) && paused_.reserve(host);
}

void Timeline::reset() {
    computing_.clear();
    communicating_.clear();
    host_.clear();
    waiting_.clear();
    paused_.clear();
}

void Timeline::add(const Entries &computing, const Entries &communicating) {
    merge(&computing_, computing, &first_);
    merge(&communicating_, communicating, &first_);
}

void Timeline::add_host(uint32_t kind, bool paused, uint64_t begin, uint64_t end) {
    if (paused)
        paused_.append(begin, end);
    else if (kind == ARGUS_KIND_HOST)
        host_.append(begin, end);
    else if (kind == ARGUS_KIND_COMMUNICATION)
        waiting_.append(begin, end);
}

Elapsed Timeline::advance(uint64_t from, uint64_t to) {
    uint64_t whole = to > from ? to - from : 0;
    uint64_t paused = paused_.length(from, to);
    /* idle: the rest of computing ∪ (communicating ∪ waiting ∪ paused). */
    first_.unite(communicating_, waiting_);
    second_.unite(first_, paused_);
    uint64_t covered = computing_.length(from, to) + second_.length(from, to) -
                       computing_.overlap(second_, from, to);
    /* not busy: communicating or waiting, and neither paused nor in a host
     * phase nor computing. */
    second_.subtract(first_, paused_);
    first_.subtract(second_, host_);
    uint64_t not_busy = first_.length(from, to) - first_.overlap(computing_, from, to);

    computing_.drop_before(to);
    communicating_.drop_before(to);
    host_.drop_before(to);
    waiting_.drop_before(to);
    paused_.drop_before(to);
    return {whole - covered, whole - paused - not_busy};
}

} // namespace argus
