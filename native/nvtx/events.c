#include "events.h"

#include <stdio.h>
#include <string.h>

#include "accounting.h"
#include "lookup.h"
#include "pending.h"
#include "thread.h"

#define SETTLE 256    /* ranges without a rule that a thread keeps to itself */
#define PATIENCE 1000 /* ranges before argus.init() that nobody is told about */

struct argus_nvtx_state argus_nvtx;

/* Range after range without a rule, best of a few. */
static void calibrate(struct argus_nvtx_thread *thread) {
    enum { ROUNDS = 256, TRIES = 5 };
    static const struct argus_nvtx_message message = {"a range of ARGUS", NULL};
    struct argus_nvtx_open open;
    double best = 0;
    uint64_t hash = argus_nvtx_hash(0, message.text, strlen(message.text));
    thread->hash[hash % ARGUS_NVTX_CACHE] = hash;
    thread->rule[hash % ARGUS_NVTX_CACHE] = ARGUS_NVTX_RULE_NONE;
    for (int attempt = 0; attempt < TRIES; attempt++) {
        uint64_t begun = argus_monotonic_ns();
        for (int i = 0; i < ROUNDS; i++) {
            argus_nvtx_push(thread, 0, argus_nvtx_rule_for(thread, 0, message));
            argus_nvtx_pop(thread, 0, &open);
        }
        double each = (double)(argus_monotonic_ns() - begun) / ROUNDS;
        if (attempt == 0 || each < best)
            best = each;
    }
    argus_nvtx_enter();
    argus_nvtx.cost_per_range = best;
    argus_nvtx_leave();
}

/* Nothing is traced: says so once to those who don't know. */
static void count_untraced(void) {
    static uint64_t untraced;
    uint64_t count = __atomic_load_n(&untraced, __ATOMIC_RELAXED) + 1; /* threads may lose some */
    __atomic_store_n(&untraced, count, __ATOMIC_RELAXED);
    argus_nvtx_ask_for_initialisation();
    if (count == PATIENCE && __atomic_load_n(&argus_tracer.generation, __ATOMIC_RELAXED) == 0)
        fprintf(stderr, "argus: NVTX ranges come, but argus.init() has not been called; nothing is traced until "
                        "the program calls it, or is started with ARGUS_NVTX_INIT=1\n");
}

static void begin_generation(struct argus_nvtx_thread *thread) {
    static int calibrated;
    if (!__atomic_exchange_n(&calibrated, 1, __ATOMIC_RELAXED))
        calibrate(thread);
    argus_nvtx_begin_generation(thread);
}

/* This thread, where there is something to trace. */
static struct argus_nvtx_thread *traced_thread(void) {
    if (!__atomic_load_n(&argus_tracer.active, __ATOMIC_RELAXED)) {
        count_untraced();
        return NULL;
    }
    struct argus_nvtx_thread *thread = argus_nvtx_thread();
    if (thread == NULL) {
        argus_nvtx_enter();
        argus_nvtx.dropped++;
        argus_nvtx_leave();
    } else if (thread->generation != __atomic_load_n(&argus_tracer.generation, __ATOMIC_RELAXED))
        begin_generation(thread);
    return thread;
}

static void settle(struct argus_nvtx_thread *thread) {
    struct argus_tracer *t = argus_nvtx_enter();
    argus_nvtx.ignored += thread->ignored;
    thread->ignored = 0;
    if (t->active)
        argus_nvtx_publish(t);
    argus_nvtx_leave();
}

void argus_nvtx_settle(void) {
    struct argus_nvtx_thread *thread = argus_nvtx_thread();
    if (thread != NULL)
        settle(thread);
}

static void ignore(struct argus_nvtx_thread *thread) {
    if (++thread->ignored >= SETTLE)
        settle(thread);
}

static void drop(void) {
    argus_nvtx_enter();
    argus_nvtx.dropped++;
    argus_nvtx_leave();
}

void argus_nvtx_range_push(uint32_t domain, struct argus_nvtx_message message) {
    struct argus_nvtx_thread *thread = traced_thread();
    if (thread == NULL)
        return;
    int rule = argus_nvtx_rule_for(thread, domain, message);
    struct argus_nvtx_open *open = argus_nvtx_push(thread, domain, rule);
    if (rule == ARGUS_NVTX_RULE_NONE)
        ignore(thread);
    else if (open == NULL)
        drop();
    else
        argus_nvtx_begin(open, message);
}

void argus_nvtx_range_pop(uint32_t domain) {
    struct argus_nvtx_open open;
    struct argus_nvtx_thread *thread = traced_thread();
    if (thread == NULL)
        return;
    if (argus_nvtx_pop(thread, domain, &open) < 0) {
        argus_nvtx_enter();
        argus_nvtx.unbalanced++;
        argus_nvtx_leave();
    } else if (open.rule != ARGUS_NVTX_RULE_NONE)
        argus_nvtx_end(&open);
}

uint64_t argus_nvtx_range_start(uint32_t domain, struct argus_nvtx_message message) {
    struct argus_nvtx_thread *thread = traced_thread();
    if (thread == NULL)
        return 0;
    struct argus_nvtx_open open = {argus_nvtx_rule_for(thread, domain, message), 0, 0};
    if (open.rule == ARGUS_NVTX_RULE_NONE) {
        ignore(thread);
        return 0;
    }
    argus_nvtx_begin(&open, message);
    return (uint64_t)open.token << 32 | (uint64_t)(open.generation & 0xffff) << 16 | (uint64_t)(open.rule + 1);
}

void argus_nvtx_range_end(uint64_t id) {
    struct argus_nvtx_open open = {(int)(id & 0xffff) - 1, __atomic_load_n(&argus_tracer.generation, __ATOMIC_RELAXED),
                                   (uint32_t)(id >> 32)};
    if (open.rule >= 0 && (size_t)open.rule < argus_nvtx.rules->used &&
        (open.generation & 0xffff) == (id >> 16 & 0xffff) && traced_thread() != NULL)
        argus_nvtx_end(&open);
}

void argus_nvtx_mark(uint32_t domain, struct argus_nvtx_message message) {
    struct argus_nvtx_thread *thread = traced_thread();
    if (thread == NULL)
        return;
    int rule = argus_nvtx_rule_for(thread, domain, message);
    if (rule != ARGUS_NVTX_RULE_NONE && argus_nvtx.rules->rule[rule].type == ARGUS_NVTX_ITERATION)
        argus_nvtx_end_iteration();
    else
        ignore(thread);
}

void argus_nvtx_thread_ends(struct argus_nvtx_thread *thread) {
    settle(thread);
    while (thread->depth > 0) {
        const struct argus_nvtx_open *open = &thread->level[--thread->depth].open;
        if (open->rule != ARGUS_NVTX_RULE_NONE)
            argus_nvtx_end(open);
    }
}
