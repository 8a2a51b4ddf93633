#include "recorder.h"

#include "nanoseconds.h"

namespace argus {
namespace {

/* Marks may take this part of an iteration; where they take more in so many
 * iterations in a row, the innermost phases are marked no longer.  It is done
 * once and for all, so that a phase's seconds do not change their meaning from
 * iteration to iteration. */
constexpr double kMostCost = 0.005;
constexpr unsigned kExpensive = 3;

} // namespace

void Recorder::begin(int (*capturing)(void)) {
    capturing_ = capturing;
    phase_ = ARGUS_NO_PHASE;
    occurrence_ = paused_ = most_depth_ = 0;
    limit_ = UINT32_MAX;
    expensive_ = 0;
    iteration_ = iteration_cost_ = 0;
    made_.store(0);
    lost_.store(0);
    cost_.store(0);
}

void Recorder::adapt(uint64_t now) {
    uint64_t cost = cost_.load(std::memory_order_relaxed);
    if (iteration_ != 0 && most_depth_ > 1) {
        bool expensive = static_cast<double>(cost - iteration_cost_) > kMostCost * static_cast<double>(now - iteration_);
        expensive_ = expensive ? expensive_ + 1 : 0;
        if (expensive_ == kExpensive) {
            limit_ = (most_depth_ < limit_ ? most_depth_ : limit_) - 1;
            expensive_ = 0;
        }
    }
    iteration_ = now;
    iteration_cost_ = cost;
    most_depth_ = 0;
}

bool Recorder::mark(Boundary *entry) {
    uint64_t before = monotonic_now();
    bool captured = entry->attribution == ARGUS_ATTRIBUTION_MEMSET && capturing_ != nullptr && capturing_();
    bool made = !captured && marks_->mark(entry->number);
    uint64_t after = monotonic_now();
    entry->marked_until = after;
    made_.fetch_add(made, std::memory_order_relaxed);
    cost_.fetch_add(after - before, std::memory_order_relaxed);
    return made;
}

void Recorder::boundary(const struct argus_boundary &what) {
    if (pool_->requests() == 0)
        return; /* the GPU is not in use */
    if (marks_->attribution() == ARGUS_ATTRIBUTION_UNDECIDED) {
        if (!marks_->choose())
            return;
        pool_->wake(); /* the library's thread slept long while nothing happened */
    }
    if (marks_->failing() || refuted_.exchange(false, std::memory_order_acq_rel))
        marks_->demote();

    if (what.depth > most_depth_)
        most_depth_ = what.depth;
    if (what.type == ARGUS_BOUNDARY_PHASE) {
        if (what.depth > limit_)
            return;
        if (what.phase == phase_ && what.occurrence == occurrence_ && what.paused == paused_)
            return; /* back from one that was not marked */
    }
    Boundary *entry = boundaries_->reserve();
    if (entry == nullptr) {
        lost_.fetch_add(1, std::memory_order_relaxed);
        return;
    }
    entry->what = what;
    if (what.depth > limit_) { /* an iteration ends within a phase too deep */
        entry->what.phase = phase_;
        entry->what.occurrence = occurrence_;
    }
    entry->attribution = marks_->attribution();
    entry->known = entry->launches = false;
    entry->state.store(static_cast<uint32_t>(Mark::kPending), std::memory_order_relaxed);
    boundaries_->publish();
    phase_ = entry->what.phase;
    occurrence_ = entry->what.occurrence;
    paused_ = what.paused;

    bool made = true;
    entry->marked_until = what.now;
    if (entry->attribution == ARGUS_ATTRIBUTION_MEMSET || entry->attribution == ARGUS_ATTRIBUTION_CALL)
        made = mark(entry);
    entry->requests = pool_->requests();
    entry->lost = lost();
    entry->state.store(static_cast<uint32_t>(made ? Mark::kMade : Mark::kSkipped), std::memory_order_release);
    if (what.type == ARGUS_BOUNDARY_END)
        adapt(what.now);
}

} // namespace argus
