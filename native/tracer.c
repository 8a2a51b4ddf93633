#include "tracer.h"

#include <string.h>

#include "kernels_link.h"
#include "sequence.h"

struct argus_tracer argus_tracer;
uint64_t argus_test_clock;

static inline uint64_t clock_now(void) {
    return argus_test_clock != 0 ? argus_test_clock : argus_monotonic_ns();
}

/* Gives the time since the last call to the phase on top. */
static inline void settle(struct argus_tracer *t, uint64_t now) {
    uint64_t elapsed = now - t->last;
    t->last = now;
    if (t->depth == 0 || t->pauses != 0)
        return;
    struct argus_open *top = &t->open[t->depth - 1];
    top->exclusive += elapsed;
    t->segment->phase_ns[top->phase] += elapsed;
}

/* Time without declared pauses. */
static uint64_t active_time(const struct argus_tracer *t, uint64_t now) {
    return (t->pauses != 0 ? t->pause_begin : now) - t->paused_total;
}

static void publish_source(struct argus_tracer *t) {
    if (t->source == NULL || !argus_segment_writable(t->segment))
        return;
    argus_store(&t->source->events, t->events);
    argus_store(&t->source->dropped, t->dropped + t->segment->dropped);
    argus_store(&t->source->cost, t->other_cost + (uint64_t)((double)t->events * t->cost_per_event));
    argus_store(&t->source->last_event, t->last);
}

/* ---- the flight recorder ---- */

static inline void record(const struct argus_tracer *t, unsigned type, unsigned detail, unsigned name,
                          uint32_t lane, uint64_t begin, uint64_t end, uint64_t value) {
    if (t->flight != NULL)
        argus_flight_add(t->flight, type, detail, name, lane, begin, end - begin, value);
}

static inline void record_phase(const struct argus_tracer *t, const struct argus_open *open, uint64_t now) {
    if (open->collective >= 0)
        record(t, ARGUS_FLIGHT_COLLECTIVE, 0, (unsigned)open->collective, (uint32_t)open->sequence,
               open->begin, now, open->bytes);
    else
        record(t, ARGUS_FLIGHT_PHASE, 0, open->phase, 0, open->begin, now, open->exclusive);
}

/* ---- life ---- */

static void forget_in_child(void) { argus_tracer.active = 0; }

int argus_tracer_start(struct argus_segment *segment, double cost_per_event) {
    static int watching_forks;
    struct argus_tracer *t = &argus_tracer;
    if (!watching_forks) {
        int failure = pthread_atfork(NULL, NULL, forget_in_child);
        if (failure != 0)
            return failure;
        watching_forks = 1;
    }
    unsigned generation = t->generation + 1;
    memset(t, 0, sizeof *t);
    t->generation = generation;
    t->segment = segment;
    if (segment->flight[ARGUS_FLIGHT_TRACER].events != NULL)
        t->flight = &segment->flight[ARGUS_FLIGHT_TRACER];
    t->cost_per_event = cost_per_event;
    t->source = argus_segment_source(segment, (struct argus_text){"phases", 6});
    t->last = clock_now();
    if (t->source != NULL)
        argus_store(&t->source->enabled, 1);
    publish_source(t);
    argus_kernels_attach(segment);
    t->active = 1;
    return 0;
}

void argus_tracer_stop(void) {
    struct argus_tracer *t = &argus_tracer;
    argus_kernels_detach();
    if (t->segment != NULL && argus_segment_writable(t->segment)) {
        argus_segment_open_phase(t->segment, -1, 0);
        argus_segment_resume(t->segment);
        publish_source(t);
        if (t->source != NULL)
            argus_store(&t->source->enabled, 0);
    }
    t->active = 0;
    t->segment = NULL;
    t->source = NULL;
    t->flight = NULL;
}

void argus_tracer_release(struct argus_segment *segment) {
    if (argus_tracer.segment == segment)
        argus_tracer_stop();
}

void argus_tracer_drop(void) {
    struct argus_tracer *t = &argus_tracer;
    t->dropped++;
    if (t->source != NULL)
        argus_store(&t->source->dropped, t->dropped + t->segment->dropped);
}

/* ---- phases and collectives ---- */

static inline void show_open(struct argus_tracer *t) {
    if (t->depth == 0)
        argus_segment_open_phase(t->segment, -1, 0);
    else
        argus_segment_open_phase(t->segment, (int)t->open[t->depth - 1].phase, t->open[t->depth - 1].begin);
}

/* Where those of this name and thread are counted; NULL: nowhere.  `begin`: a
 * free record will do. */
static struct argus_surplus *find_surplus(struct argus_tracer *t, unsigned phase, int collective, int begin) {
    pthread_t self = pthread_self();
    struct argus_surplus *vacant = NULL;
    for (unsigned i = 0; i < ARGUS_DEPTH; i++) {
        struct argus_surplus *surplus = &t->surplus[i];
        if (surplus->count == 0)
            vacant = vacant == NULL ? surplus : vacant;
        else if (surplus->phase == phase && surplus->collective == collective &&
                 pthread_equal(surplus->thread, self))
            return surplus;
    }
    if (!begin || vacant == NULL)
        return NULL;
    *vacant = (struct argus_surplus){.phase = phase, .collective = collective, .thread = self};
    return vacant;
}

static void begin_surplus(struct argus_tracer *t, unsigned phase, int collective) {
    struct argus_surplus *surplus = find_surplus(t, phase, collective, 1);
    argus_tracer_drop();
    if (surplus == NULL)
        return; /* its end may end another of the same name early, which leaves nothing open */
    surplus->count++;
    surplus->newest = ++t->occurrences;
    t->overflow++;
}

/* Whether the end is that of one without a place, and not of the entry `at`:
 * what this thread began last ends first. */
static int end_surplus(struct argus_tracer *t, unsigned phase, int collective, int at) {
    struct argus_surplus *surplus = find_surplus(t, phase, collective, 0);
    if (surplus == NULL)
        return 0;
    if (at >= 0 && pthread_equal(t->open[at].thread, surplus->thread) &&
        (int32_t)(t->open[at].occurrence - surplus->newest) > 0)
        return 0;
    surplus->count--;
    t->overflow--;
    return 1;
}

static inline struct argus_open *push(struct argus_tracer *t, unsigned phase, int collective) {
    if (t->depth == ARGUS_DEPTH) {
        begin_surplus(t, phase, collective);
        return NULL;
    }
    struct argus_open *open = &t->open[t->depth];
    open->phase = phase;
    open->collective = collective;
    open->thread = pthread_self();
    open->exclusive = 0;
    open->paused = t->pauses != 0;
    open->occurrence = ++t->occurrences;
    uint64_t now = clock_now(); /* as late as possible: what comes before belongs to the parent */
    settle(t, now);
    open->begin = now;
    t->depth++;
    argus_segment_open_phase(t->segment, (int)phase, now);
    argus_kernels_tell(t, ARGUS_BOUNDARY_PHASE, now);
    return open;
}

/* The entry that an end is about: of this thread if there is one, else the
 * latest of any thread, for a phase may end elsewhere.  -1: none. */
static int find(const struct argus_tracer *t, unsigned phase, int collective) {
    pthread_t self = pthread_self();
    int fallback = -1;
    for (int i = (int)t->depth - 1; i >= 0; i--) {
        const struct argus_open *open = &t->open[i];
        if (open->phase != phase || open->collective != collective)
            continue;
        if (pthread_equal(open->thread, self))
            return i;
        if (fallback < 0)
            fallback = i;
    }
    return fallback;
}

static inline void finish_phase(struct argus_tracer *t, const struct argus_open *open) {
    /* What lies wholly within a declared pause did not happen. */
    if (!open->paused || open->exclusive != 0)
        argus_segment_count_phase(t->segment, open->phase, open->exclusive);
}

static void finish_collective(struct argus_tracer *t, const struct argus_open *open, uint64_t now) {
    argus_segment_complete(t->segment, (unsigned)open->collective, open->sequence);
    uint64_t inclusive = active_time(t, now) - open->active_begin;
    if (!open->paused || inclusive != 0)
        argus_segment_count_collective(t->segment, (unsigned)open->collective, inclusive, open->bytes);
}

static void end(unsigned phase, int collective) {
    struct argus_tracer *t = &argus_tracer;
    uint64_t now = clock_now();
    int at = find(t, phase, collective);
    if (t->overflow != 0 && end_surplus(t, phase, collective, at))
        return;
    if (at < 0)
        return; /* begun before the tracer started */
    settle(t, now);
    record_phase(t, &t->open[at], now);
    finish_phase(t, &t->open[at]);
    if (collective >= 0)
        finish_collective(t, &t->open[at], now);
    t->depth--;
    if ((unsigned)at != t->depth)
        memmove(&t->open[at], &t->open[at + 1], (t->depth - (unsigned)at) * sizeof *t->open);
    show_open(t);
    argus_kernels_tell(t, ARGUS_BOUNDARY_PHASE, now);
    t->events++;
    if (t->source != NULL) {
        argus_store(&t->source->events, t->events);
        argus_store(&t->source->last_event, now);
    }
}

void argus_tracer_begin(unsigned phase) { push(&argus_tracer, phase, -1); }

void argus_tracer_end(unsigned phase) { end(phase, -1); }

uint64_t argus_tracer_now(void) { return clock_now(); }

/* Another thread waits for its peers, and loses nothing by what happens in this one. */
static int waits_elsewhere(const struct argus_tracer *t) {
    if (t->depth == 0)
        return 0;
    const struct argus_open *top = &t->open[t->depth - 1];
    uint64_t kind = t->segment->kind[top->phase];
    return (kind == ARGUS_KIND_COMMUNICATION || kind == ARGUS_KIND_MIXED) &&
           !pthread_equal(top->thread, pthread_self());
}

void argus_tracer_past(unsigned phase, uint64_t begin) {
    struct argus_tracer *t = &argus_tracer;
    uint64_t now = clock_now();
    if (begin < t->last)
        begin = t->last; /* what was told since then has been accounted for */
    if (t->pauses != 0 || begin >= now || waits_elsewhere(t))
        return;
    settle(t, begin);
    t->last = now;
    t->segment->phase_ns[phase] += now - begin;
    argus_segment_count_phase(t->segment, phase, now - begin);
    record(t, ARGUS_FLIGHT_PHASE, 0, phase, 0, begin, now, now - begin);
    t->events++;
    publish_source(t);
}

void argus_tracer_begin_collective(unsigned phase, int collective, uint64_t bytes) {
    struct argus_tracer *t = &argus_tracer;
    uint64_t sequence = collective < 0 ? 0 : argus_segment_enqueue(t->segment, (unsigned)collective);
    struct argus_open *open = push(t, phase, collective);
    if (open == NULL)
        return;
    open->sequence = sequence;
    open->bytes = bytes;
    open->active_begin = active_time(t, open->begin);
}

void argus_tracer_end_collective(unsigned phase, int collective) { end(phase, collective); }

/* ---- iterations ---- */

static void begin_recording(struct argus_tracer *t, uint64_t now) {
    t->iteration_begin = now;
    t->iteration_paused = 0;
    argus_segment_reset_iteration(t->segment);
    argus_kernels_tell(t, ARGUS_BOUNDARY_BEGIN, now);
}

/* Accounts for the part of an open pause that has passed. */
static void take_pause_apart(struct argus_tracer *t, uint64_t now) {
    t->iteration_paused += now - t->pause_begin;
    t->paused_total += now - t->pause_begin;
    t->pause_begin = now;
}

static void write_iteration(struct argus_tracer *t, uint64_t now, const uint64_t *number) {
    if (t->pauses != 0)
        take_pause_apart(t, now);
    uint64_t iteration = number != NULL ? *number : t->next_number;
    t->next_number = iteration + 1;
    record(t, ARGUS_FLIGHT_ITERATION, 0, 0, 0, t->iteration_begin, now, iteration);
    argus_segment_end_iteration(t->segment, iteration, now, now - t->iteration_begin - t->iteration_paused,
                                UINT64_MAX);
    t->iteration_begin = now;
    t->iteration_paused = 0;
    argus_kernels_tell(t, ARGUS_BOUNDARY_END, now);
    t->other_cost += clock_now() - now;
    publish_source(t);
}

void argus_tracer_begin_iteration(uint64_t token) {
    struct argus_tracer *t = &argus_tracer;
    if (t->owner != 0 || t->pauses != 0)
        return; /* part of another iteration, or of a pause */
    uint64_t now = clock_now();
    settle(t, now);
    t->owner = token;
    t->blocks = 1;
    if (t->iteration_begin == 0)
        begin_recording(t, now);
}

void argus_tracer_end_iteration(uint64_t token, const uint64_t *number, int failed) {
    struct argus_tracer *t = &argus_tracer;
    if (t->owner != token)
        return;
    uint64_t now = clock_now();
    settle(t, now);
    t->owner = 0;
    if (failed)
        t->iteration_begin = 0;
    else
        write_iteration(t, now, number);
}

void argus_tracer_abandon_iteration(uint64_t token) {
    if (argus_tracer.owner == token) {
        argus_tracer.owner = 0;
        argus_tracer.iteration_begin = 0;
    }
}

void argus_tracer_mark(const uint64_t *number, int begin) {
    struct argus_tracer *t = &argus_tracer;
    if (t->blocks || t->pauses != 0)
        return;
    uint64_t now = clock_now();
    settle(t, now);
    if (t->iteration_begin != 0)
        write_iteration(t, now, number);
    else if (begin)
        begin_recording(t, now);
    if (!begin)
        t->iteration_begin = 0;
}

/* ---- declared pauses ---- */

void argus_tracer_pause(struct argus_text kind) {
    struct argus_tracer *t = &argus_tracer;
    uint64_t now = clock_now();
    settle(t, now);
    if (t->pauses++ != 0)
        return;
    t->pause_begin = t->pause_since = now;
    if (t->flight != NULL)
        t->pause_name = argus_flight_intern(t->flight, kind.data, kind.length);
    if (t->blocks && t->owner == 0)
        t->iteration_begin = 0; /* the next one begins where its block begins */
    argus_segment_pause(t->segment, kind, now);
    argus_kernels_tell(t, ARGUS_BOUNDARY_PHASE, now);
}

void argus_tracer_resume(void) {
    struct argus_tracer *t = &argus_tracer;
    if (t->pauses == 0)
        return;
    uint64_t now = clock_now();
    settle(t, now);
    if (--t->pauses != 0)
        return;
    take_pause_apart(t, now);
    record(t, ARGUS_FLIGHT_PAUSE, 0, t->pause_name, 0, t->pause_since, now, 0);
    argus_segment_resume(t->segment);
    argus_kernels_tell(t, ARGUS_BOUNDARY_PHASE, now);
}
