#include "core.h"

#include <signal.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "lock.h"
#include "nanoseconds.h"

extern "C" {
#include "../sequence.h"
}

namespace argus {
namespace {

constexpr uint64_t kTick = 250000000;       /* ns; how long a buffer that is not full waits at most */
constexpr uint64_t kSlowTick = 2000000000;  /* while the GPU is not in use */
constexpr uint64_t kQuiet = 30000000000u;   /* without a buffer, in spite of iterations */
constexpr unsigned kQuietIterations = 5;
constexpr unsigned kRefuted = 8;            /* iterations in a row without marks that came back */
constexpr uint64_t kMostBroken = 16;        /* buffers that CUPTI can't read */

constexpr uint32_t kNeeded[] = {kConcurrentKernel, kMemcpy, kMemset};
constexpr uint32_t kAll[] = {kConcurrentKernel, kMemcpy, kMemset, kJit, kOverhead, kDriver, kRuntime};

Core *instance; /* CUPTI's callbacks carry nothing of ours */

uint32_t attribution_from(const char *name) {
    static const char *const names[] = {"auto", "none", "memset", "call", "api"};
    for (uint32_t i = 0; name != nullptr && i < sizeof names / sizeof *names; i++)
        if (std::strcmp(name, names[i]) == 0)
            return i;
    return ARGUS_ATTRIBUTION_UNDECIDED;
}

} // namespace

/* ---- CUPTI's callbacks, from any thread ---- */

void Core::requested(uint8_t **buffer, size_t *size, size_t *most_records) {
    bool forked = instance->forked_.load(std::memory_order_relaxed);
    *buffer = forked ? nullptr : instance->pool_.request(monotonic_now());
    *size = *buffer == nullptr ? 0 : kBufferBytes;
    *most_records = 0;
}

void Core::completed(void *, uint32_t, uint8_t *buffer, size_t, size_t valid) {
    if (instance->forked_.load(std::memory_order_relaxed))
        return;
    instance->last_filled_.store(monotonic_now(), std::memory_order_relaxed);
    instance->pool_.complete(buffer, valid);
}

/* ---- life ---- */

void Core::configure() {
    const char *quiet = getenv("ARGUS_KERNEL_QUIET_SECONDS");
    double seconds = quiet == nullptr ? 0 : atof(quiet);
    quiet_ = seconds > 0 && seconds < 1e6 ? static_cast<uint64_t>(seconds * 1e9) : kQuiet;
    marks_.configure(&cupti_, attribution_from(getenv("ARGUS_KERNEL_ATTRIBUTION")));
    const char *patterns = getenv("ARGUS_KERNEL_PATTERNS");
    if (patterns != nullptr && patterns[0] != '\0') {
        reader_.use(argus_kernel_patterns_read(patterns, message_, sizeof message_));
        if (message_[0] != '\0')
            fprintf(stderr, "argus: %s\n", message_);
    }
}

CuptiResult Core::arm() {
    if (cupti_.set_attribute != nullptr) {
        uint8_t zeroed = 1;
        size_t size = sizeof zeroed;
        cupti_.set_attribute(kAttributeZeroedBuffers, &size, &zeroed);
    }
    CuptiResult result = cupti_.register_callbacks(requested, completed);
    for (uint32_t kind : kNeeded)
        if (result == kSuccess)
            result = cupti_.enable(kind);
    if (result != kSuccess) {
        disarm();
        return result;
    }
    cupti_.enable(kJit); /* not every CUPTI knows them */
    cupti_.enable(kOverhead);
    armed_ = true;
    return kSuccess;
}

void Core::disarm() {
    for (uint32_t kind : kAll)
        cupti_.disable(kind);
    armed_ = false;
}

int Core::start(const char *cupti) {
    if (forked_.load())
        return -1; /* the lock may be held for good */
    Lock lock(&life_);
    if (running_)
        return 0;
    instance = this;
    const char *trouble = load_cupti(&cupti_, cupti);
    if (trouble == nullptr && (!pool_.reserve() || !ledger_.reserve()))
        trouble = "no memory for its buffers";
    if (trouble != nullptr) {
        snprintf(message_, sizeof message_, "%s", trouble);
        return -1;
    }
    configure();
    sample_clock();
    CuptiResult result = arm();
    if (result != kSuccess) {
        snprintf(message_, sizeof message_, "%s (CUPTI code %d)", explain(result), result);
        return -1;
    }
    stopping_.store(false);
    sigset_t others, before; /* signals are the program's, not this thread's, */
    sigfillset(&others);
    for (int fault : {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP}) /* but its own faults (native/guard.c) */
        sigdelset(&others, fault);
    pthread_sigmask(SIG_SETMASK, &others, &before);
    running_ = pthread_create(&thread_, nullptr, run, this) == 0;
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (!running_) {
        disarm();
        snprintf(message_, sizeof message_, "no thread can be started");
        return -1;
    }
    state_.store(ARGUS_KERNELS_ON);
    return 0;
}

void Core::shutdown() {
    detach();
    if (forked_.load())
        return;
    Lock lock(&life_);
    if (!running_)
        return;
    stopping_.store(true);
    pool_.wake();
    pthread_join(thread_, nullptr);
    running_ = false;
    if (armed_)
        disarm();
    state_.store(ARGUS_KERNELS_OFF);
}

void Core::attach(const struct argus_kernels_target &target, int (*capturing)(void)) {
    if (forked_.load())
        return;
    recorder_.begin(capturing);
    Lock lock(&consumer_);
    target_ = target;
    reader_.record_in(target.flight);
    if (seen_)
        forget();
    seen_ = attached_ = true;
    histograms_.touch();
    ledger_.reset();
    for (unsigned k = 0; k < kClasses; k++)
        snprintf(target_.kernels[k].name, sizeof target_.kernels[k].name, "%s",
                 argus_kernel_class_name(static_cast<enum argus_kernel_class>(k)));
    argus_publish(&target_.device->classes_used, kClasses);
    publish();
    wanted_.store(true);
    pool_.wake();
}

/* What an earlier tracer of this process counted. */
void Core::forget() {
    histograms_.reset();
    reader_.forget_counts();
    ledger_.forget_counts();
    jit_told_ = dropped_cupti_ = gaps_ = gap_ = 0;
    cpu_then_ = cpu_time();
}

void Core::detach() {
    if (forked_.load())
        return;
    Lock lock(&consumer_);
    if (!attached_)
        return;
    publish();
    if (target_.source != nullptr)
        argus_store(&target_.source->enabled, 0);
    attached_ = false;
    reader_.record_in(nullptr);
    ledger_.reset();
    wanted_.store(false);
    pool_.wake();
}

void Core::boundary(const struct argus_boundary &what) {
    if (state_.load(std::memory_order_relaxed) != ARGUS_KERNELS_ON || forked_.load(std::memory_order_relaxed))
        return;
    recorder_.boundary(what);
    if (what.type == ARGUS_BOUNDARY_END)
        ended_.fetch_add(1, std::memory_order_relaxed);
}

void Core::profiler(bool active) {
    if (profiling_.exchange(active) != active && state_.load() != ARGUS_KERNELS_OFF) {
        if (active) {
            aside_since_.store(monotonic_now());
            state_.store(ARGUS_KERNELS_ASIDE); /* no marks from now on */
        }
        pool_.wake();
    }
}

void Core::status(struct argus_kernels_status *status) {
    std::memset(status, 0, sizeof *status);
    status->state = state_.load();
    status->attribution = marks_.attribution();
    status->events = events_.load();
    status->dropped = lost_.load();
    status->buffers = pool_.requests();
    if (forked_.load())
        return;
    Lock lock(&life_);
    snprintf(status->message, sizeof status->message, "%s", message_);
}

/* ---- the library's thread ---- */

void *Core::run(void *self) {
    pthread_setname_np(pthread_self(), "argus-kernels");
    static_cast<Core *>(self)->loop();
    return nullptr;
}

void Core::loop() {
    while (!stopping_.load()) {
        uint64_t now = monotonic_now(), every = pool_.requests() == 0 ? kSlowTick : kTick;
        if (now >= last_tick_ + every) {
            tick(now);
            last_tick_ = now;
        }
        Filled filled;
        if (pool_.take(&filled, last_tick_ + every - now))
            read(filled);
        reconcile(monotonic_now());
    }
}

void Core::sample_clock() {
    uint64_t monotonic = 0, stamp = 0, realtime = 0, doubt = UINT64_MAX;
    for (int i = 0; i < 5 && doubt > 300; i++) { /* the one with the least in between */
        uint64_t ticks = 0, before = monotonic_now();
        if (cupti_.timestamp == nullptr || cupti_.timestamp(&ticks) != kSuccess)
            ticks = 0;
        uint64_t after = monotonic_now(), half = (after - before) / 2;
        if (half >= doubt)
            continue;
        doubt = half;
        monotonic = before + half;
        realtime = clock_now(CLOCK_REALTIME);
        stamp = ticks == 0 ? realtime - half : ticks;
    }
    clock_.sample(monotonic, stamp, realtime, doubt);
}

void Core::read(const Filled &filled) {
    sample_clock();
    {
        Lock lock(&consumer_);
        uint64_t discarded = reader_.counts().dropped_clock;
        reader_.read(filled, monotonic_now());
        if (reader_.counts().dropped_clock != discarded)
            ledger_.lose();
        events_.store(reader_.counts().records, std::memory_order_relaxed);
    }
    pool_.give_back(filled);
    ended_then_ = ended_.load();
    Lock lock(&consumer_);
    advance();
}

void Core::advance() {
    if (!attached_ || state_.load() != ARGUS_KERNELS_ON)
        return;
    if (pool_.refused() != refused_) {
        refused_ = pool_.refused();
        ledger_.lose();
    }
    ledger_.advance();
    if (ledger_.unmarked() >= kRefuted) {
        recorder_.refute();
        ledger_.forgive();
    }
}

void Core::tick(uint64_t now) {
    size_t dropped = 0;
    bool active = state_.load() == ARGUS_KERNELS_ON && armed_, waiting;
    sample_clock();
    if (active && cupti_.dropped_records(nullptr, 0, &dropped) != kSuccess)
        dropped = 0;
    {
        Lock lock(&consumer_);
        dropped_cupti_ += dropped;
        if (dropped != 0)
            ledger_.lose();
        advance(); /* where nothing was launched, no buffer comes */
        publish();
        waiting = ledger_.waiting();
    }
    if (!active)
        return;
    if (waiting)
        cupti_.flush_all(0);
    watch(now);
    if (reader_.counts().broken > kMostBroken)
        turn_off("CUPTI's records can't be read");
}

/* Follows what the training thread wants. */
void Core::reconcile(uint64_t now) {
    uint32_t state = state_.load();
    if (state == ARGUS_KERNELS_OFF)
        return;
    if (profiling_.load()) {
        if (aside_)
            return;
        aside_ = true;
        state_.store(ARGUS_KERNELS_ASIDE);
        Lock lock(&consumer_);
        ledger_.reset();
        publish();
    } else if (state == ARGUS_KERNELS_ASIDE) {
        count_gap(aside_since_.load(), now);
        aside_ = false;
        rearm(now);
    } else if (armed_ && !wanted_.load()) {
        disarm();
    } else if (!armed_ && wanted_.load()) {
        rearm(now);
    }
}

void Core::count_gap(uint64_t begin, uint64_t end) {
    Lock lock(&consumer_);
    gaps_++;
    gap_ += end > begin ? end - begin : 0;
}

/* Takes CUPTI (back): callbacks, kinds, clock. */
void Core::rearm(uint64_t now) {
    pool_.abandon();
    clock_.reset();
    sample_clock();
    CuptiResult result = arm();
    if (result != kSuccess) {
        turn_off(explain(result));
        return;
    }
    marks_.enable_again();
    {
        Lock lock(&consumer_);
        ledger_.reset(); /* what began before can't be told */
    }
    last_filled_.store(now);
    ended_then_ = ended_.load();
    state_.store(ARGUS_KERNELS_ON);
}

/* Another profiler took the callbacks and did not tell: iterations go on, and
 * no buffer comes. */
void Core::watch(uint64_t now) {
    uint64_t last = last_filled_.load(); /* perhaps after `now`, by another thread */
    if (last == 0 || now < last + quiet_ || ended_.load() - ended_then_ < kQuietIterations)
        return;
    count_gap(last, now);
    quiet_ *= 2; /* or it has not finished, or the GPU is used no more */
    rearm(now);
}

void Core::turn_off(const char *reason) {
    state_.store(ARGUS_KERNELS_OFF);
    if (armed_)
        disarm();
    {
        Lock lock(&life_);
        snprintf(message_, sizeof message_, "%s", reason);
    }
    fprintf(stderr, "argus: kernel tracing is off: %s\n", reason);
    Lock lock(&consumer_);
    ledger_.reset();
    publish();
}

} // namespace argus
