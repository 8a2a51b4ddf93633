#include "stack_sampler.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include "lock.h"
#include "sequence.h"
#include "stack_store.h"
#include "stack_walk.h"
#include "tracer.h"

#define THREADS 8          /* at a time, the training thread among them */
#define BUDGET 500         /* a sample may take this part of the interval: 0.2 % */
#define MOST_INTERVAL 10000000000u
#define MOST_FAILURES 10   /* in a row */
#define STACK_BYTES (1 << 20)

static struct {
    /* With the GIL: */
    struct argus_segment *segment; /* NULL: off */
    struct argus_source *source;
    struct argus_stack_patterns *patterns;
    unsigned long training;
    uint64_t base;    /* of the clock whose ticks samples stand for */
    uint64_t counted; /* until when ticks are in samples */
    uint64_t samples, failures, in_calls;
    uint64_t collection_begin, collection_end; /* of the last collection of garbage */
    unsigned failing;
    double typical; /* nanoseconds of CPU of a sample */
    int joinable;
    pthread_t thread;
    PyObject *current_frames;
    /* Across threads: */
    uint64_t interval; /* between two samples: longer than a tick where these cost too much */
    uint64_t thread_cpu;
    int pending;
    /* With the mutex: */
    int stop;
} s;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake;
static struct argus_stack_store store;

/* ---- one stack ---- */

/* What the open phase or pause says. */
static enum argus_stack_category of_phase(void) {
    const struct argus_tracer *t = &argus_tracer;
    enum argus_stack_category found = ARGUS_STACK_OTHER;
    argus_lock();
    if (t->active && t->pauses != 0) {
        const char *kind = t->segment->state->pause_kind;
        found = argus_stack_category_find(kind, strnlen(kind, sizeof t->segment->state->pause_kind));
        found = found == ARGUS_STACK_NONE ? ARGUS_STACK_OTHER : found;
    } else if (t->active && t->depth != 0) {
        unsigned phase = t->open[t->depth - 1].phase;
        const char *name = t->segment->phases[phase].name;
        found = argus_stack_category_find(name, strnlen(name, sizeof t->segment->phases->name));
        if (found == ARGUS_STACK_NONE)
            found = t->segment->kind[phase] == ARGUS_KIND_COMMUNICATION ? ARGUS_STACK_COLLECTIVE_WAIT
                                                                        : ARGUS_STACK_TRAINING;
    } else if (t->active && t->iteration_begin != 0) {
        found = ARGUS_STACK_TRAINING;
    }
    argus_unlock();
    return found;
}

/* A moment at which a sample was due, and for how many ticks it stands. */
struct due {
    uint64_t now, weight;
    uint64_t collecting; /* those ticks that fell into a collection of garbage: no Python ran */
};

static void count(enum argus_stack_category category, uint64_t ticks) {
    uint64_t *counter = &s.segment->stacks->samples[category];
    argus_store(counter, *counter + ticks);
}

static void count_stack(PyObject *frame, int training, const struct due *due) {
    unsigned names[ARGUS_STACK_DEPTH];
    struct argus_stack_match matches[ARGUS_STACK_DEPTH];
    unsigned depth = argus_walk(&store, frame, names);
    int line = PyFrame_GetLineNumber((PyFrameObject *)frame);
    for (unsigned i = 0; i < depth; i++)
        matches[i] = argus_stack_store_match(&store, names[i]);
    enum argus_stack_category category =
        argus_stack_decide(matches, depth, training ? of_phase() : ARGUS_STACK_OTHER);
    if (training) {
        count(category, due->weight - due->collecting);
        count(ARGUS_STACK_GC, due->collecting);
        if (due->collecting > due->weight / 2)
            category = ARGUS_STACK_GC;
    }
    argus_stack_store_add(&store, due->now, training ? "training thread" : "other threads", names, depth,
                          line > 0 ? (uint32_t)line : 0, category, due->weight);
}

/* ---- one sample ---- */

static int count_stacks(const struct due *due) {
    PyObject *frames = PyObject_CallNoArgs(s.current_frames), *thread, *frame;
    Py_ssize_t position = 0;
    int others = THREADS - 1;
    if (frames == NULL || !PyDict_Check(frames)) {
        Py_XDECREF(frames);
        return -1;
    }
    argus_stack_store_turn(&store, due->now);
    while (PyDict_Next(frames, &position, &thread, &frame)) {
        int training = PyLong_AsUnsignedLong(thread) == s.training;
        if (training || others-- > 0)
            count_stack(frame, training, due);
    }
    Py_DECREF(frames);
    PyErr_Clear();
    return 0;
}

static uint64_t thread_time(void) {
    struct timespec spent;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent);
    return (uint64_t)spent.tv_sec * 1000000000u + (uint64_t)spent.tv_nsec;
}

static void publish(uint64_t now) {
    struct argus_source *source = s.source;
    if (source == NULL)
        return;
    argus_store(&source->events, s.samples);
    argus_store(&source->dropped, s.failures);
    argus_store(&source->cost, s.in_calls + __atomic_load_n(&s.thread_cpu, __ATOMIC_RELAXED));
    argus_store(&source->last_event, now);
}

static void leave(void);

static void fail(uint64_t weight) {
    s.failures += weight;
    if (++s.failing < MOST_FAILURES) {
        argus_clear_exception();
        return;
    }
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    argus_report("stack sampling is off: sys._current_frames() failed %d times in a row: %S", MOST_FAILURES,
                 value != NULL ? value : Py_None);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    if (s.source != NULL)
        argus_store(&s.source->enabled, 0);
    leave();
}

/* Ticks of which nothing is known. */
static void pass_over(uint64_t now, uint64_t weight) {
    static int said;
    if (!said)
        argus_report("stacks are not sampled while there are other interpreters in this process: "
                     "Python can't tell the stacks of one alone");
    said = 1;
    s.failures += weight;
    s.counted += weight * s.base;
    publish(now);
}

/* With the GIL.  `called`: in a pending call, where its time is the program's. */
static void sample(int called) {
    if (s.segment == NULL || !argus_segment_writable(s.segment))
        return;
    if (s.segment->lost) {
        leave();
        return;
    }
    uint64_t now = argus_monotonic_ns();
    if ((int64_t)(now - s.counted) < (int64_t)(s.base / 2))
        return;
    uint64_t begin = thread_time();
    struct due due = {.now = now, .weight = (now - s.counted + s.base / 2) / s.base};
    if (!argus_walk_allowed()) {
        pass_over(now, due.weight);
        return;
    }
    for (uint64_t tick = s.counted + s.base; tick <= s.collection_end && due.collecting < due.weight; tick += s.base)
        due.collecting += tick >= s.collection_begin;
    s.counted += due.weight * s.base;
    /* Neither finalizers nor callbacks of a collection may run here. */
    int collects = PyGC_Disable();
    int failure = count_stacks(&due);
    if (collects)
        PyGC_Enable();
    if (failure) {
        fail(due.weight);
    } else {
        s.failing = 0;
        s.samples += due.weight;
    }
    uint64_t took = thread_time() - begin;
    if (called)
        s.in_calls += took;
    if (s.segment == NULL)
        return;
    s.typical += ((double)took - s.typical) / 8;
    double affordable = s.typical * BUDGET;
    uint64_t interval = affordable > MOST_INTERVAL ? MOST_INTERVAL : (uint64_t)affordable;
    __atomic_store_n(&s.interval, interval < s.base ? s.base : interval, __ATOMIC_RELAXED);
    publish(now);
}

static int pending_call(void *Py_UNUSED(unused)) {
    __atomic_store_n(&s.pending, 0, __ATOMIC_RELAXED);
    sample(1);
    return 0;
}

static void tick(void) {
    if (__atomic_exchange_n(&s.pending, 1, __ATOMIC_RELAXED) == 0) {
        if (Py_AddPendingCall(pending_call, NULL) == 0)
            return;
        __atomic_store_n(&s.pending, 0, __ATOMIC_RELAXED);
    }
    /* The last one has not been made: the main thread is outside of Python, or
     * in a call that keeps the GIL, and then this waits with it. */
    PyGILState_STATE state = PyGILState_Ensure();
    sample(0);
    PyGILState_Release(state);
}

/* ---- the thread ---- */

static void *run(void *Py_UNUSED(unused)) {
    uint64_t next = argus_monotonic_ns();
    pthread_mutex_lock(&mutex);
    while (!s.stop) {
        uint64_t now = argus_monotonic_ns();
        next += __atomic_load_n(&s.interval, __ATOMIC_RELAXED);
        next = next < now ? now : next;
        struct timespec until = {(time_t)(next / 1000000000u), (long)(next % 1000000000u)};
        while (!s.stop && pthread_cond_timedwait(&wake, &mutex, &until) != ETIMEDOUT)
            ;
        if (s.stop)
            break;
        pthread_mutex_unlock(&mutex);
        tick();
        __atomic_store_n(&s.thread_cpu, thread_time(), __ATOMIC_RELAXED);
        pthread_mutex_lock(&mutex);
    }
    pthread_mutex_unlock(&mutex);
    return NULL;
}

/* The program's signals are for its own threads; faults stay here (guard.h). */
static int start_thread(void) {
    static const int faults[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
    sigset_t all, before;
    pthread_attr_t attributes;
    sigfillset(&all);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        sigdelset(&all, faults[i]);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failure = pthread_create(&s.thread, &attributes, run, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return failure;
}

static void forget_in_child(void) {
    s.segment = NULL;
    s.source = NULL;
    s.joinable = 0;
    s.pending = 0;
}

/* ---- life ---- */

static int prepare(void) {
    static int ready;
    if (ready)
        return 0;
    if (argus_walk_prepare() < 0)
        return -1;
    if (s.current_frames == NULL) {
        s.current_frames = PySys_GetObject("_current_frames"); /* borrowed */
        if (s.current_frames == NULL) {
            PyErr_SetString(PyExc_RuntimeError, "this Python has no sys._current_frames()");
            return -1;
        }
        Py_INCREF(s.current_frames);
    }
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    int failure = pthread_cond_init(&wake, &attributes);
    pthread_condattr_destroy(&attributes);
    if (failure == 0)
        failure = pthread_atfork(NULL, NULL, forget_in_child);
    if (failure != 0) {
        errno = failure;
        PyErr_SetFromErrno(PyExc_OSError);
        return -1;
    }
    ready = 1;
    return 0;
}

int argus_stacks_start(struct argus_segment *segment, unsigned long thread, uint64_t interval,
                       struct argus_stack_patterns *patterns) {
    if (s.segment != NULL || segment->stacks == NULL) {
        PyErr_SetString(PyExc_RuntimeError, s.segment != NULL ? "stacks are sampled already"
                                                              : "the segment has no room for stacks");
        return -1;
    }
    if (prepare() < 0)
        return -1;
    argus_stacks_stop();
    argus_stack_patterns_free(s.patterns);
    s.patterns = patterns;
    argus_stack_store_open(&store, segment->stack_generations, patterns);
    s.training = thread;
    s.base = s.interval = interval;
    s.samples = s.failures = s.in_calls = s.thread_cpu = 0;
    s.failing = 0;
    s.collection_begin = s.collection_end = 0;
    s.typical = 0;
    s.stop = 0;
    s.counted = argus_monotonic_ns();
    argus_lock();
    s.source = argus_segment_source(segment, (struct argus_text){"stacks", 6});
    argus_unlock();
    argus_store(&segment->stacks->interval, interval);
    s.segment = segment;
    int failure = start_thread();
    if (failure != 0) {
        s.segment = NULL;
        s.patterns = NULL; /* the caller's again */
        errno = failure;
        PyErr_SetFromErrno(PyExc_OSError);
        return -1;
    }
    s.joinable = 1;
    if (s.source != NULL)
        argus_store(&s.source->enabled, 1);
    return 0;
}

static void leave(void) {
    s.segment = NULL;
    s.source = NULL;
    pthread_mutex_lock(&mutex);
    s.stop = 1;
    pthread_cond_signal(&wake);
    pthread_mutex_unlock(&mutex);
}

void argus_stacks_detach(const struct argus_segment *segment) {
    if (s.segment == NULL || s.segment != segment)
        return;
    if (s.source != NULL && argus_segment_writable(s.segment))
        argus_store(&s.source->enabled, 0);
    leave();
}

void argus_stacks_collected(uint64_t begin, uint64_t end) {
    s.collection_begin = begin;
    s.collection_end = end;
}

void argus_stacks_stop(void) {
    argus_stacks_detach(s.segment);
    if (!s.joinable)
        return;
    s.joinable = 0;
    pthread_t thread = s.thread;
    Py_BEGIN_ALLOW_THREADS
    pthread_join(thread, NULL);
    Py_END_ALLOW_THREADS
}

struct argus_stacks_status argus_stacks_status(void) {
    return (struct argus_stacks_status){
        .active = s.segment != NULL,
        .interval = __atomic_load_n(&s.interval, __ATOMIC_RELAXED),
        .samples = s.samples,
        .failures = s.failures,
        .cost = s.in_calls + __atomic_load_n(&s.thread_cpu, __ATOMIC_RELAXED),
    };
}
