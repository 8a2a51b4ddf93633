#include "accounting.h"

#include <dlfcn.h>
#include <string.h>

#include "kernels_link.h"
#include "lock.h"
#include "lookup.h"
#include "pending.h"
#include "sequence.h"

#define FIRST_ITERATIONS 8        /* after each of which Python is asked, as in py_runtime.c */
#define TOKEN (UINT64_C(1) << 63) /* iterations that Python gives count from 1 */

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

struct argus_tracer *argus_nvtx_enter(void) {
    argus_lock();
    argus_without_gil = 1;
    return &argus_tracer;
}

void argus_nvtx_leave(void) {
    argus_without_gil = 0;
    argus_unlock();
}

static const struct argus_nvtx_rule *rule_of(const struct argus_nvtx_open *open) {
    return &argus_nvtx.rules->rule[open->rule];
}

/* ---- the source ---- */

void argus_nvtx_publish(const struct argus_tracer *t) {
    if (source == NULL || source_generation != t->generation || !argus_segment_writable(t->segment))
        return;
    if (source->events != argus_nvtx.ranges)
        argus_store(&source->last_event, t->last);
    argus_store(&source->events, argus_nvtx.ranges);
    argus_store(&source->dropped, argus_nvtx.dropped);
    argus_store(&source->cost,
                (uint64_t)((double)(argus_nvtx.ranges + argus_nvtx.ignored) * argus_nvtx.cost_per_range));
}

void argus_nvtx_begin_generation(struct argus_nvtx_thread *thread) {
    struct argus_tracer *t = argus_nvtx_enter();
    thread->generation = t->generation;
    if (t->active && source_generation != t->generation) {
        source = argus_segment_source(t->segment, (struct argus_text){"nvtx", 4});
        source_generation = t->generation;
        if (source != NULL)
            argus_store(&source->enabled, 1);
        argus_nvtx_publish(t);
    }
    argus_nvtx_leave();
}

/* ---- phases, iterations, pauses ---- */

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
    __atomic_store_n(&target->generation, t->generation, __ATOMIC_RELAXED);
}

/* After an iteration ended: Python looks at the first ones, where the segment was lost, and for a profiler. */
static int needs_python(const struct argus_tracer *t) {
    return t->segment->lost || t->segment->completed_iterations <= FIRST_ITERATIONS ||
           argus_kernels_attached != NULL;
}

/* Returns whether Python is to be asked. */
static int mark(const struct argus_tracer *t) {
    if (argus_nvtx_outranked == t->generation)
        return 0;
    argus_tracer_mark(NULL, 1);
    return needs_python(t);
}

static int begin_phase(struct argus_tracer *t, const struct argus_nvtx_rule *rule, struct target *target) {
    int ask = 0;
    if (target->generation != t->generation)
        resolve(t, rule, target);
    if (over == t->generation && !rule->last) {
        over = 0;
        ask = mark(t);
    }
    if (target->overflowed)
        argus_tracer_drop();
    argus_tracer_begin(target->phase);
    return ask;
}

void argus_nvtx_begin(struct argus_nvtx_open *open, struct argus_nvtx_message message) {
    const struct argus_nvtx_rule *rule = rule_of(open);
    struct target *target = &targets[open->rule];
    int ask = 0;
    if (rule->type == ARGUS_NVTX_PHASE &&
        __atomic_load_n(&target->generation, __ATOMIC_RELAXED) !=
            __atomic_load_n(&argus_tracer.generation, __ATOMIC_RELAXED))
        look_for_cuda();
    struct argus_tracer *t = argus_nvtx_enter();
    if (t->active) {
        open->generation = t->generation;
        open->token = ++tokens;
        argus_nvtx.ranges++;
        if (rule->type == ARGUS_NVTX_PHASE)
            ask = begin_phase(t, rule, target);
        else if (rule->type == ARGUS_NVTX_PAUSE)
            argus_tracer_pause((struct argus_text){rule->name, rule->length});
        else if (argus_nvtx_outranked != t->generation) {
            if (t->owner == 0) /* else it is part of another one, maybe of this rule */
                target->numbered = argus_nvtx_number(message, &target->number);
            argus_tracer_begin_iteration(TOKEN | open->token);
        }
    }
    argus_nvtx_leave();
    if (ask)
        argus_nvtx_ask();
}

void argus_nvtx_end(const struct argus_nvtx_open *open) {
    const struct argus_nvtx_rule *rule = rule_of(open);
    const struct target *target = &targets[open->rule];
    int ask = 0;
    struct argus_tracer *t = argus_nvtx_enter();
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
        argus_nvtx_publish(t);
    }
    argus_nvtx_leave();
    if (ask)
        argus_nvtx_ask();
}

void argus_nvtx_end_iteration(void) {
    int ask = 0;
    struct argus_tracer *t = argus_nvtx_enter();
    if (t->active) {
        argus_nvtx.ranges++;
        ask = mark(t);
        argus_nvtx_publish(t);
    }
    argus_nvtx_leave();
    if (ask)
        argus_nvtx_ask();
}
