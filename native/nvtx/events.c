#include "events.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "kernels_link.h"
#include "lock.h"
#include "pending.h"
#include "sequence.h"
#include "thread.h"
#include "tracer.h"

#define SETTLE 256              /* ranges without a rule that a thread keeps to itself */
#define PATIENCE 1000           /* ranges before argus.init() that nobody is told about */
#define FIRST_ITERATIONS 8      /* after each of which Python is asked, as in py_runtime.c */
#define TOKEN (UINT64_C(1) << 63) /* iterations that Python gives count from 1 */

struct argus_nvtx_state argus_nvtx;
unsigned argus_nvtx_outranked;

/* Where a rule's ranges go in one generation of the tracer. */
struct target {
    unsigned generation;
    unsigned phase;
    int overflowed;
    int numbered; /* the iteration begun last */
    uint64_t number;
};

static struct target targets[ARGUS_NVTX_RULES_MAX];
static struct argus_source *source; /* of source_generation */
static unsigned source_generation;
static unsigned over;   /* generation in which an iteration's last phase has ended, until the next phase */
static uint32_t tokens;
static int cuda;        /* the program uses a GPU */

static struct argus_tracer *enter(void) {
    argus_lock();
    argus_without_gil = 1;
    return &argus_tracer;
}

static void leave(void) {
    argus_without_gil = 0;
    argus_unlock();
}

static const struct argus_nvtx_rule *rule_of(const struct argus_nvtx_open *open) {
    return &argus_nvtx.rules->rule[open->rule];
}

/* ---- threads and generations ---- */

static void publish(const struct argus_tracer *t) {
    if (source == NULL || source_generation != t->generation || !argus_segment_writable(t->segment))
        return;
    argus_store(&source->events, argus_nvtx.ranges);
    argus_store(&source->dropped, argus_nvtx.dropped);
    argus_store(&source->cost,
                (uint64_t)((double)(argus_nvtx.ranges + argus_nvtx.ignored) * argus_nvtx.cost_per_range));
}

static void begin_generation(struct argus_nvtx_thread *thread) {
    if (argus_nvtx.cost_per_range == 0)
        argus_nvtx_calibrate();
    struct argus_tracer *t = enter();
    thread->generation = t->generation;
    if (t->active && source_generation != t->generation) {
        source = argus_segment_source(t->segment, (struct argus_text){"nvtx", 4});
        source_generation = t->generation;
        if (source != NULL)
            argus_store(&source->enabled, 1);
        publish(t);
    }
    leave();
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

/* This thread, where there is something to trace. */
static struct argus_nvtx_thread *traced_thread(void) {
    if (!__atomic_load_n(&argus_tracer.active, __ATOMIC_RELAXED)) {
        count_untraced();
        return NULL;
    }
    struct argus_nvtx_thread *thread = argus_nvtx_thread();
    if (thread == NULL) {
        enter();
        argus_nvtx.dropped++;
        leave();
    } else if (thread->generation != __atomic_load_n(&argus_tracer.generation, __ATOMIC_RELAXED))
        begin_generation(thread);
    return thread;
}

static void settle(struct argus_nvtx_thread *thread) {
    struct argus_tracer *t = enter();
    argus_nvtx.ignored += thread->ignored;
    thread->ignored = 0;
    if (t->active)
        publish(t);
    leave();
}

void argus_nvtx_settle(void) {
    struct argus_nvtx_thread *thread = argus_nvtx_thread();
    if (thread != NULL)
        settle(thread);
}

/* ---- names ---- */

void argus_nvtx_remember(uint64_t hash, const char *text, size_t length) {
    static int full;
    if (__atomic_load_n(&full, __ATOMIC_RELAXED))
        return;
    enter();
    unsigned i = 0;
    while (i < argus_nvtx.names_used && argus_nvtx.name_hash[i] != hash)
        i++;
    if (i == argus_nvtx.names_used && i < ARGUS_NVTX_NAMES) {
        argus_nvtx.name_hash[i] = hash;
        argus_copy_text(argus_nvtx.name[i], sizeof argus_nvtx.name[i], text, length);
        argus_nvtx.names_used++;
    }
    if (argus_nvtx.names_used == ARGUS_NVTX_NAMES)
        __atomic_store_n(&full, 1, __ATOMIC_RELAXED);
    leave();
}

static int known_rule(int rule) {
    return rule != ARGUS_NVTX_RULE_NONE && argus_nvtx.rules->rule[rule].type == ARGUS_NVTX_IGNORE
               ? ARGUS_NVTX_RULE_NONE
               : rule;
}

static int look_up(uint32_t domain, uint64_t hash, const char *text, size_t length) {
    const struct argus_nvtx_domain *in = argus_nvtx_domain(domain);
    int rule = argus_nvtx_find(argus_nvtx.rules, in->name, in->length, text, length);
    if (rule == ARGUS_NVTX_RULE_NONE)
        argus_nvtx_remember(hash, text, length);
    return known_rule(rule);
}

static int find_rule(struct argus_nvtx_thread *thread, uint32_t domain, struct argus_nvtx_message message) {
    if (message.string != NULL)
        return known_rule(message.string->rule);
    if (message.text == NULL)
        return ARGUS_NVTX_RULE_NONE;
    size_t length = argus_nvtx_name_length(message.text);
    uint64_t hash = argus_nvtx_hash(domain, message.text, length);
    unsigned slot = hash % ARGUS_NVTX_CACHE;
    if (thread->hash[slot] != hash) {
        thread->rule[slot] = (int16_t)look_up(domain, hash, message.text, length);
        thread->hash[slot] = hash;
    }
    return thread->rule[slot];
}

/* The number at the end of a name, as in "iteration 17"; 0: there is none. */
static int number_of(struct argus_nvtx_message message, uint64_t *number) {
    const char *text = message.string != NULL ? message.string->text : message.text;
    size_t length = argus_nvtx_name_length(text), digits = 0;
    while (digits < length && text[length - digits - 1] >= '0' && text[length - digits - 1] <= '9')
        digits++;
    if (digits == 0 || digits > 18)
        return 0;
    *number = 0;
    for (size_t i = length - digits; i < length; i++)
        *number = *number * 10 + (uint64_t)(text[i] - '0');
    return 1;
}

/* ---- begin and end ---- */

/* Not under the lock: dlopen has one of its own. */
static void look_for_cuda(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    __atomic_store_n(&cuda, driver != NULL, __ATOMIC_RELAXED);
    if (driver != NULL)
        dlclose(driver);
}

/* The host's clock tells when work for a GPU was launched, not how long it took. */
static uint64_t kind_of(const struct argus_nvtx_rule *rule) {
    int hosts_clock = __atomic_load_n(&cuda, __ATOMIC_RELAXED) && argus_kernels_attached == NULL;
    return rule->assumed && rule->kind == ARGUS_KIND_COMPUTE && hosts_clock ? ARGUS_KIND_MIXED : rule->kind;
}

static void resolve(const struct argus_tracer *t, const struct argus_nvtx_rule *rule, struct target *target) {
    struct argus_text name = {rule->name, rule->length};
    target->phase = argus_segment_phase(t->segment, name, kind_of(rule));
    target->overflowed = target->phase == ARGUS_OTHER_PHASE && strcmp(rule->name, "other") != 0;
    target->generation = t->generation;
}

/* After an iteration ended: Python looks at the first ones, where the segment was lost, and for a profiler. */
static int needs_python(const struct argus_tracer *t) {
    return t->segment->lost || t->segment->completed_iterations <= FIRST_ITERATIONS ||
           argus_kernels_attached != NULL;
}

/* Returns whether Python is to be asked. */
static int mark(struct argus_tracer *t, const uint64_t *number) {
    if (argus_nvtx_outranked == t->generation)
        return 0;
    argus_tracer_mark(number, 1);
    return needs_python(t);
}

static int begin_phase(struct argus_tracer *t, const struct argus_nvtx_rule *rule, struct target *target) {
    int ask = 0;
    if (target->generation != t->generation)
        resolve(t, rule, target);
    if (over == t->generation && !rule->last) {
        over = 0;
        ask = mark(t, NULL);
    }
    if (target->overflowed)
        argus_tracer_drop();
    argus_tracer_begin(target->phase);
    return ask;
}

static void begin(struct argus_nvtx_open *open, struct argus_nvtx_message message) {
    const struct argus_nvtx_rule *rule = rule_of(open);
    struct target *target = &targets[open->rule];
    int ask = 0;
    if (rule->type == ARGUS_NVTX_PHASE &&
        __atomic_load_n(&target->generation, __ATOMIC_RELAXED) !=
            __atomic_load_n(&argus_tracer.generation, __ATOMIC_RELAXED))
        look_for_cuda();
    struct argus_tracer *t = enter();
    if (t->active) {
        open->generation = t->generation;
        open->token = ++tokens;
        argus_nvtx.ranges++;
        if (rule->type == ARGUS_NVTX_PHASE)
            ask = begin_phase(t, rule, target);
        else if (rule->type == ARGUS_NVTX_PAUSE)
            argus_tracer_pause((struct argus_text){rule->name, rule->length});
        else if (argus_nvtx_outranked != t->generation) {
            target->numbered = number_of(message, &target->number);
            argus_tracer_begin_iteration(TOKEN | open->token);
        }
    }
    leave();
    if (ask)
        argus_nvtx_ask();
}

static void end(const struct argus_nvtx_open *open) {
    const struct argus_nvtx_rule *rule = rule_of(open);
    const struct target *target = &targets[open->rule];
    int ask = 0;
    struct argus_tracer *t = enter();
    if (t->active && open->generation == t->generation) {
        if (rule->type == ARGUS_NVTX_PHASE) {
            argus_tracer_end(target->phase);
            if (rule->last)
                over = t->generation;
        } else if (rule->type == ARGUS_NVTX_PAUSE)
            argus_tracer_resume();
        else {
            argus_tracer_end_iteration(TOKEN | open->token, target->numbered ? &target->number : NULL, 0);
            ask = needs_python(t);
        }
        publish(t);
        if (source != NULL && source_generation == t->generation)
            argus_store(&source->last_event, t->last);
    }
    leave();
    if (ask)
        argus_nvtx_ask();
}

/* ---- what programs call ---- */

static void ignore(struct argus_nvtx_thread *thread) {
    if (++thread->ignored >= SETTLE)
        settle(thread);
}

static void drop(void) {
    enter();
    argus_nvtx.dropped++;
    leave();
}

void argus_nvtx_range_push(uint32_t domain, struct argus_nvtx_message message) {
    struct argus_nvtx_thread *thread = traced_thread();
    if (thread == NULL)
        return;
    int rule = find_rule(thread, domain, message);
    struct argus_nvtx_open *open = argus_nvtx_push(thread, domain, rule);
    if (rule == ARGUS_NVTX_RULE_NONE)
        ignore(thread);
    else if (open == NULL)
        drop();
    else
        begin(open, message);
}

void argus_nvtx_range_pop(uint32_t domain) {
    struct argus_nvtx_open open;
    struct argus_nvtx_thread *thread = traced_thread();
    if (thread == NULL)
        return;
    if (argus_nvtx_pop(thread, domain, &open) < 0) {
        enter();
        argus_nvtx.unbalanced++;
        leave();
    } else if (open.rule != ARGUS_NVTX_RULE_NONE)
        end(&open);
}

uint64_t argus_nvtx_range_start(uint32_t domain, struct argus_nvtx_message message) {
    struct argus_nvtx_thread *thread = traced_thread();
    if (thread == NULL)
        return 0;
    struct argus_nvtx_open open = {find_rule(thread, domain, message), 0, 0};
    if (open.rule == ARGUS_NVTX_RULE_NONE) {
        ignore(thread);
        return 0;
    }
    begin(&open, message);
    return (uint64_t)open.token << 32 | (uint64_t)(open.generation & 0xffff) << 16 | (uint64_t)(open.rule + 1);
}

void argus_nvtx_range_end(uint64_t id) {
    struct argus_nvtx_open open = {(int)(id & 0xffff) - 1, __atomic_load_n(&argus_tracer.generation, __ATOMIC_RELAXED),
                                   (uint32_t)(id >> 32)};
    if (open.rule >= 0 && (size_t)open.rule < argus_nvtx.rules->used &&
        (open.generation & 0xffff) == (id >> 16 & 0xffff) && traced_thread() != NULL)
        end(&open);
}

void argus_nvtx_mark(uint32_t domain, struct argus_nvtx_message message) {
    struct argus_nvtx_thread *thread = traced_thread();
    if (thread == NULL)
        return;
    int rule = find_rule(thread, domain, message), ask = 0;
    if (rule == ARGUS_NVTX_RULE_NONE || argus_nvtx.rules->rule[rule].type != ARGUS_NVTX_ITERATION) {
        ignore(thread);
        return;
    }
    uint64_t number;
    int numbered = number_of(message, &number);
    struct argus_tracer *t = enter();
    if (t->active) {
        argus_nvtx.ranges++;
        ask = mark(t, numbered ? &number : NULL);
        publish(t);
    }
    leave();
    if (ask)
        argus_nvtx_ask();
}

void argus_nvtx_leave(struct argus_nvtx_thread *thread) {
    settle(thread);
    while (thread->depth > 0) {
        const struct argus_nvtx_open *open = &thread->level[--thread->depth].open;
        if (open->rule != ARGUS_NVTX_RULE_NONE)
            end(open);
    }
}

/* Range after range without a rule, best of a few. */
void argus_nvtx_calibrate(void) {
    enum { ROUNDS = 256, TRIES = 5 };
    static const struct argus_nvtx_message message = {"a range of ARGUS", NULL};
    struct argus_nvtx_thread *thread = argus_nvtx_thread();
    struct argus_nvtx_open open;
    double best = 0;
    if (thread == NULL)
        return;
    uint64_t hash = argus_nvtx_hash(0, message.text, strlen(message.text));
    thread->hash[hash % ARGUS_NVTX_CACHE] = hash;
    thread->rule[hash % ARGUS_NVTX_CACHE] = ARGUS_NVTX_RULE_NONE;
    for (int attempt = 0; attempt < TRIES; attempt++) {
        uint64_t begun = argus_monotonic_ns();
        for (int i = 0; i < ROUNDS; i++) {
            argus_nvtx_push(thread, 0, find_rule(thread, 0, message));
            argus_nvtx_pop(thread, 0, &open);
        }
        double each = (double)(argus_monotonic_ns() - begun) / ROUNDS;
        if (attempt == 0 || each < best)
            best = each;
    }
    enter();
    argus_nvtx.cost_per_range = best;
    leave();
}
