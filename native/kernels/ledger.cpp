#include "ledger.h"

#include <cstring>

#include "serial.h"

namespace argus {
namespace {

/* How far a call's record may lie outside of the moments that the training
 * thread took around it, for the two clocks are compared only now and then. */
constexpr uint64_t kCallTolerance = 20000;

uint64_t later(uint64_t a, uint64_t b) { return a > b ? a : b; }

} // namespace

bool Ledger::reserve() {
    return pending_.reserve() && computing_.reserve() && communicating_.reserve() && timeline_.reserve();
}

void Ledger::reset() {
    pending_.clear();
    timeline_.reset();
    boundaries_->release_until(boundaries_->head());
    std::memset(reached_, 0, sizeof reached_);
    open();
    broken_ = fresh_ = true;
    suspect_ = boundaries_->head();
    following_ = anchored_ = launch_seen_ = false;
    unmarked_ = 0;
}

void Ledger::open() {
    std::memset(&told_, 0, sizeof told_);
    occurrences_ = 0;
    kernels_ = 0;
    broken_ = unknown_ = false;
}

void Ledger::add(const Entry &entry) {
    following_ = following_ || boundaries_->head() != boundaries_->tail();
    if (following_ && !pending_.append(entry)) {
        overflowed_++;
        lose();
    }
}

/* ---- ids ---- */

void Ledger::marked(uint32_t number, uint32_t id) {
    if (!boundaries_->holds(number))
        return;
    Boundary &boundary = boundaries_->at(number);
    if (boundary.attribution == ARGUS_ATTRIBUTION_MEMSET && boundary.number == number) {
        boundary.id = id;
        boundary.known = true;
    }
}

void Ledger::called(uint64_t start, uint32_t id) {
    for (uint32_t n = boundaries_->tail(); n != boundaries_->head(); n++) {
        Boundary &boundary = boundaries_->at(n);
        if (boundary.state.load(std::memory_order_acquire) == static_cast<uint32_t>(Mark::kPending) ||
            start + kCallTolerance < boundary.what.now)
            return;
        if (boundary.known || boundary.attribution != ARGUS_ATTRIBUTION_CALL ||
            start > boundary.marked_until + kCallTolerance)
            continue;
        boundary.id = id;
        boundary.known = true;
        return;
    }
}

void Ledger::launched(uint64_t start, uint32_t id) {
    uint32_t low = boundaries_->tail(), high = boundaries_->head();
    const uint32_t first = low;
    while (low != high) { /* the first boundary after the launch */
        uint32_t middle = low + (high - low) / 2;
        if (boundaries_->at(middle).what.now <= start)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == first) {
        see_launch(id);
        return;
    }
    Boundary &before = boundaries_->at(low - 1);
    if (!before.launches || serial_before(id, before.first_launch))
        before.first_launch = id;
    if (!before.launches || serial_before(before.last_launch, id))
        before.last_launch = id;
    before.launches = true;
}

void Ledger::see_launch(uint32_t id) {
    if (!launch_seen_ || serial_before(last_launch_, id))
        last_launch_ = id;
    launch_seen_ = true;
}

/* Gives an id to a boundary that is ready, where that is possible; in order. */
bool Ledger::resolve(uint32_t number) {
    Boundary &boundary = boundaries_->at(number);
    if (boundary.attribution != ARGUS_ATTRIBUTION_API || boundary.known)
        return boundary.known;
    if (number != boundaries_->tail() && boundaries_->at(number - 1).launches)
        see_launch(boundaries_->at(number - 1).last_launch);
    boundary.known = launch_seen_ || boundary.launches;
    boundary.id = launch_seen_ ? last_launch_ + 1 : boundary.first_launch;
    return boundary.known;
}

/* ---- iterations ---- */

bool Ledger::ready(const Boundary &boundary) {
    return boundary.state.load(std::memory_order_acquire) != static_cast<uint32_t>(Mark::kPending) &&
           pool_->all_back(boundary.requests);
}

void Ledger::advance() {
    uint32_t first = boundaries_->tail();
    const uint32_t head = boundaries_->head();
    if (first == head)
        return;
    for (uint32_t n = first + 1; n != head; n++) {
        const Boundary &boundary = boundaries_->at(n);
        if (boundary.what.type == ARGUS_BOUNDARY_PHASE)
            continue;
        if (!ready(boundary))
            break;
        process(first, n);
        first = n;
    }
    /* A long iteration is accounted for piece by piece. */
    if (pending_.size() < kMostEntries / 4 * 3 && head - first < kBoundaries / 4 * 3)
        return;
    for (uint32_t n = head - 1; n != first; n--)
        if (ready(boundaries_->at(n))) {
            for (uint32_t i = first; i != n + 1; i++)
                resolve(i);
            if (boundaries_->at(n).known) {
                process(first, n);
                return;
            }
        }
}

/* Makes the ids between two boundaries usable: in order, each known. */
void Ledger::settle(uint32_t first, uint32_t last) {
    for (uint32_t n = first; n != last + 1; n++) {
        Boundary &boundary = boundaries_->at(n);
        if (boundary.attribution == ARGUS_ATTRIBUTION_NONE)
            continue;
        bool known = resolve(n);
        bool ordered = known && (n == first || !boundaries_->at(n - 1).known ||
                                 !serial_before(boundary.id, boundaries_->at(n - 1).id));
        if (ordered)
            continue;
        broken_ = true;
        if (boundary.state.load(std::memory_order_relaxed) == static_cast<uint32_t>(Mark::kMade))
            unknown_ = true;
        if (n != first) {
            boundary.known = boundaries_->at(n - 1).known && n != last;
            boundary.id = boundaries_->at(n - 1).id;
        }
    }
}

/* Moves the kernels launched before the last boundary from pending_ to the
 * other two. */
void Ledger::select(uint32_t first, uint32_t last) {
    const Boundary &from = boundaries_->at(first), &until = boundaries_->at(last);
    size_t kept = 0;
    computing_.clear();
    communicating_.clear();
    for (size_t i = 0; i < pending_.size(); i++) {
        const Entry entry = pending_[i];
        bool before = until.known ? serial_before(entry.correlation, until.id) : entry.start < until.what.now;
        if (!before) {
            pending_.keep(kept++, entry);
        } else if (anchored_ && from.known && serial_before(entry.correlation, from.id)) {
            late_++;
        } else {
            (entry.communication ? communicating_ : computing_).append(entry);
        }
    }
    pending_.cut(kept);
    computing_.sort_by_start();
    communicating_.sort_by_start();
}

/* Number of the boundary that the kernel belongs to: the last one that is not
 * after it. */
uint32_t Ledger::owner_of(uint32_t id, uint32_t first, uint32_t last, uint32_t hint) {
    if (!serial_before(id, boundaries_->at(hint).id) &&
        (hint + 1 == last || serial_before(id, boundaries_->at(hint + 1).id)))
        return hint;
    uint32_t low = first, high = last;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (serial_before(id, boundaries_->at(middle).id))
            high = middle;
        else
            low = middle;
    }
    return low;
}

Occurred *Ledger::occurrence_of(const struct argus_boundary &what) {
    for (unsigned i = occurrences_; i-- > 0;) /* mostly the last one, or that around it */
        if (occurred_[i].occurrence == what.occurrence)
            return &occurred_[i];
    if (occurrences_ == kOccurrences)
        return nullptr;
    Occurred *occurred = &occurred_[occurrences_++];
    *occurred = {what.occurrence, what.phase, what.kind, 0, 0};
    return occurred;
}

/* Adds what sorted kernels add to the unions of their phases. */
void Ledger::account(const Entries &entries, uint32_t first, uint32_t last, bool communication) {
    const bool attributed = boundaries_->at(first).known;
    uint64_t *sum = communication ? told_.communication : told_.compute;
    uint64_t *reached = reached_[communication];
    uint32_t owner = first;
    Occurred *occurred = nullptr;
    uint32_t occurred_owner = last;
    for (size_t i = 0; i < entries.size(); i++) {
        const Entry &entry = entries[i];
        uint32_t phase = ARGUS_DEVICE_OUTSIDE;
        if (attributed) {
            if (serial_before(entry.correlation, boundaries_->at(first).id))
                continue; /* from before the first boundary of all */
            owner = owner_of(entry.correlation, first, last, owner);
            const struct argus_boundary &what = boundaries_->at(owner).what;
            if (what.paused)
                continue;
            if (what.phase < ARGUS_MAX_PHASES)
                phase = what.phase;
        }
        uint64_t start = later(entry.start, reached[phase]);
        if (entry.end <= start)
            continue;
        uint64_t more = entry.end - start;
        reached[phase] = entry.end;
        sum[phase] += more;
        if (phase == ARGUS_DEVICE_OUTSIDE)
            continue;
        if (owner != occurred_owner) {
            occurred = occurrence_of(boundaries_->at(owner).what);
            occurred_owner = owner;
        }
        if (occurred != nullptr)
            (communication ? occurred->communication : occurred->compute) += more;
    }
}

void Ledger::add_host(uint32_t first, uint32_t last) {
    for (uint32_t n = first; n != last; n++) {
        const struct argus_boundary &what = boundaries_->at(n).what;
        if (what.phase != ARGUS_NO_PHASE || what.paused)
            timeline_.add_host(what.kind, what.paused, what.now, boundaries_->at(n + 1).what.now);
    }
}

/* Accounts for what lies between two boundaries that are ready. */
void Ledger::process(uint32_t first, uint32_t last) {
    Boundary &end = boundaries_->at(last);
    if (fresh_) {
        fresh_ = false;
        begun_ = first;
        broken_ = boundaries_->at(first).what.type == ARGUS_BOUNDARY_PHASE; /* in the middle of one */
        lost_ = boundaries_->at(first).lost;
    }
    settle(first, last);
    if (end.lost != lost_)
        broken_ = true;
    lost_ = end.lost;
    select(first, last);
    kernels_ += computing_.size() + communicating_.size();
    account(computing_, first, last, false);
    account(communicating_, first, last, true);
    timeline_.add(computing_, communicating_);
    add_host(first, last);
    Elapsed elapsed = timeline_.advance(boundaries_->at(first).what.now, end.what.now);
    told_.idle += elapsed.idle;
    told_.busy += elapsed.busy;
    told_.attributed = boundaries_->at(first).known;

    if (end.what.type == ARGUS_BOUNDARY_END)
        finish(end);
    if (end.what.type != ARGUS_BOUNDARY_PHASE) {
        open();
        begun_ = last;
    }
    anchored_ = end.known;
    boundaries_->release_until(last);
}

void Ledger::finish(const Boundary &end) {
    /* Marks that are missing while kernels come back do not work; where both
     * are missing another profiler has taken them, and idleness would be a lie. */
    if (kernels_ != 0)
        unmarked_ = unknown_ ? unmarked_ + 1 : 0;
    if (broken_ || kernels_ == 0 || serial_before(begun_, suspect_)) {
        incomplete_++;
        return;
    }
    told_.ordinal = end.what.ordinal;
    told_.end = end.what.now;
    listener_(self_, told_, occurred_, occurrences_);
}

} // namespace argus
