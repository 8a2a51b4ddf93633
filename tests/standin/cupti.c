/* A stand-in for libcupti: the part of the activity API that ARGUS uses.
 *
 * Built with -DSTANDIN_OLD it lacks what came with CUPTI 12.6. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "standin.h"

#define HELD 4096

typedef void (*request_callback)(uint8_t **, size_t *, size_t *);
typedef void (*complete_callback)(void *, uint32_t, uint8_t *, size_t, size_t);

struct standin standin = {.kernel_bytes = 208};

static struct lane {
    pthread_mutex_t lock;
    uint8_t *buffer;
    size_t size, used;
} lanes[STANDIN_LANES];

static struct held {
    uint8_t *buffer;
    size_t size, used;
} held[HELD];
static unsigned held_count, next_held;
static pthread_mutex_t held_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t counters = PTHREAD_MUTEX_INITIALIZER;
static request_callback request;
static complete_callback complete;
static _Thread_local unsigned own_lane;

__attribute__((constructor)) static void prepare(void) {
    for (unsigned i = 0; i < STANDIN_LANES; i++)
        pthread_mutex_init(&lanes[i].lock, NULL);
}

static uint64_t read_clock(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t standin_now(void) { return read_clock(CLOCK_MONOTONIC); }

void standin_use_lane(unsigned lane) { own_lane = lane; }

static uint64_t stamp(uint64_t monotonic) {
    static uint64_t offset;
    if (monotonic == 0)
        return 0;
    if (__atomic_load_n(&standin.clock, __ATOMIC_RELAXED) == STANDIN_TICKS)
        return (uint64_t)((double)monotonic * 2.1);
    if (__atomic_load_n(&offset, __ATOMIC_RELAXED) == 0)
        __atomic_store_n(&offset, read_clock(CLOCK_REALTIME) - standin_now(), __ATOMIC_RELAXED);
    return monotonic + __atomic_load_n(&offset, __ATOMIC_RELAXED);
}

static void add(uint64_t *counter, uint64_t more) { __atomic_fetch_add(counter, more, __ATOMIC_RELAXED); }

/* ---- buffers ---- */

static void hand_over(struct held full) {
    complete_callback callback = __atomic_load_n(&complete, __ATOMIC_ACQUIRE);
    if (callback != NULL)
        callback(NULL, 0, full.buffer, full.size, full.used);
}

/* With the lane's lock held. */
static void finish(struct lane *lane) {
    struct held full = {lane->buffer, lane->size, lane->used};
    lane->buffer = NULL;
    if (full.buffer == NULL)
        return;
    if (!standin.hold) {
        hand_over(full);
        return;
    }
    pthread_mutex_lock(&held_lock);
    if (held_count < HELD)
        held[held_count++] = full;
    pthread_mutex_unlock(&held_lock);
}

static int is_enabled(const uint8_t *record) {
    uint32_t kind;
    memcpy(&kind, record, sizeof kind);
    if (kind == 4 && __atomic_load_n(&standin.driver_calls, __ATOMIC_RELAXED) != 0)
        return 1;
    return kind >= 32 || __atomic_load_n(&standin.enabled, __ATOMIC_RELAXED) >> kind & 1;
}

static void put(unsigned index, const uint8_t *record, size_t bytes) {
    struct lane *lane = &lanes[index % STANDIN_LANES];
    if (!is_enabled(record))
        return;
    pthread_mutex_lock(&lane->lock);
    if (lane->buffer != NULL && lane->used + bytes > lane->size)
        finish(lane);
    if (lane->buffer == NULL) {
        size_t most = 0;
        request_callback callback = __atomic_load_n(&request, __ATOMIC_ACQUIRE);
        lane->used = lane->size = 0;
        if (callback != NULL)
            callback(&lane->buffer, &lane->size, &most);
    }
    if (lane->buffer == NULL || bytes > lane->size) {
        add(&standin.dropped, 1);
    } else {
        memcpy(lane->buffer + lane->used, record, bytes);
        lane->used += bytes;
        add(&standin.records, 1);
    }
    pthread_mutex_unlock(&lane->lock);
}

void standin_fill(void) {
    for (unsigned i = 0; i < STANDIN_LANES; i++) {
        pthread_mutex_lock(&lanes[i].lock);
        finish(&lanes[i]);
        pthread_mutex_unlock(&lanes[i].lock);
    }
}

static void *deliver(void *unused) {
    for (;;) {
        pthread_mutex_lock(&held_lock);
        if (next_held == held_count) {
            pthread_mutex_unlock(&held_lock);
            return unused;
        }
        struct held full = held[next_held++];
        pthread_mutex_unlock(&held_lock);
        hand_over(full);
    }
}

void standin_deliver(unsigned threads, unsigned seed) {
    pthread_t thread[16];
    for (unsigned i = held_count; i > 1; i--) { /* Fisher and Yates */
        unsigned other = (unsigned)rand_r(&seed) % i;
        struct held swap = held[i - 1];
        held[i - 1] = held[other];
        held[other] = swap;
    }
    next_held = 0;
    for (unsigned i = 0; i < threads; i++)
        pthread_create(&thread[i], NULL, deliver, NULL);
    for (unsigned i = 0; i < threads; i++)
        pthread_join(thread[i], NULL);
    held_count = next_held = 0;
}

/* ---- records ---- */

static void set32(uint8_t *record, size_t at, uint32_t value) { memcpy(record + at, &value, sizeof value); }
static void set64(uint8_t *record, size_t at, uint64_t value) { memcpy(record + at, &value, sizeof value); }

static size_t bytes_of(uint32_t kind) {
    switch (kind) {
    case 3:
    case 10:
        return standin.kernel_bytes;
    case 1:
    case 2:
        return 88;
    case 4:
    case 5:
        return 40;
    case 17:
        return 56;
    case 52:
        return 72;
    default:
        return 0;
    }
}

static uint32_t next_correlation(void) { return __atomic_add_fetch(&standin.correlation, 1, __ATOMIC_RELAXED); }

/* Copies and memsets: value and bytes are a memset's. */
static void put_copy(unsigned lane, uint32_t kind, uint32_t stream, uint64_t start, uint64_t end,
                     uint32_t correlation, uint32_t value, uint64_t bytes) {
    uint8_t record[88] = {0};
    set32(record, 0, kind);
    set32(record, 4, value);
    set64(record, 8, bytes);
    set64(record, 16, stamp(start));
    set64(record, 24, stamp(end));
    set32(record, 36, 1);
    set32(record, 40, stream);
    set32(record, 44, correlation);
    put(lane, record, sizeof record);
}

void standin_record(unsigned lane, uint32_t kind, const char *name, uint32_t stream, uint64_t start, uint64_t end,
                    uint32_t correlation) {
    if (kind == 1 || kind == 2) {
        put_copy(lane, kind, stream, start, end, correlation, 0, 4096);
        return;
    }
    uint8_t record[256] = {0};
    set32(record, 0, kind);
    set64(record, 16, stamp(start));
    set64(record, 24, stamp(end));
    set32(record, 40, standin.devices != 0 ? stream % standin.devices : 0);
    set32(record, 44, 1);
    set32(record, 48, stream);
    set32(record, 92, correlation);
    memcpy(record + 104, &name, sizeof name);
    put(lane, record, bytes_of(kind));
}

uint32_t standin_launch(unsigned lane, uint32_t kind, const char *name, uint32_t stream, uint64_t start,
                        uint64_t end) {
    uint32_t correlation = next_correlation();
    standin_record(lane, kind, name, stream, start, end, correlation);
    return correlation;
}

void standin_call(unsigned lane, uint32_t kind, uint32_t callback, uint64_t start, uint64_t end, uint32_t id) {
    uint8_t record[40] = {0};
    set32(record, 0, kind);
    set32(record, 4, callback);
    set64(record, 8, stamp(start));
    set64(record, 16, stamp(end));
    set32(record, 32, id);
    put(lane, record, sizeof record);
}

void standin_host(unsigned lane, uint32_t kind, uint32_t which, uint64_t start, uint64_t end) {
    uint8_t record[72] = {0};
    set32(record, 0, kind);
    set32(record, 4, which);
    set64(record, kind == 17 ? 24 : 16, stamp(start));
    set64(record, kind == 17 ? 32 : 24, stamp(end));
    put(lane, record, bytes_of(kind));
}

/* ---- what libcuda.c needs ---- */

void standin_mark(uint32_t value, uint32_t stream) {
    uint64_t now = standin_now();
    add(&standin.memsets, 1);
    uint32_t id = next_correlation();
    if (!standin.deaf)
        put_copy(own_lane, 2, stream, now, now + 1000, id, value, 4);
}

void standin_version_call(void) {
    uint64_t now = standin_now();
    uint32_t id = next_correlation();
    if (__atomic_load_n(&standin.driver_calls, __ATOMIC_RELAXED) & 4 && !standin.deaf)
        standin_call(own_lane, 4, 2, now, now + 100, id);
}

/* ---- CUPTI's functions ---- */

#define REFUSE                                                                                                \
    if (standin.result != 0)                                                                                  \
    return standin.result

int cuptiActivityRegisterCallbacks(request_callback requested, complete_callback completed) {
    REFUSE;
    add(&standin.registrations, 1);
    __atomic_store_n(&request, requested, __ATOMIC_RELEASE);
    __atomic_store_n(&complete, completed, __ATOMIC_RELEASE);
    return 0;
}

int cuptiActivityEnable(uint32_t kind) {
    REFUSE;
    if (standin.enable_result != 0)
        return standin.enable_result;
    __atomic_fetch_or(&standin.enabled, kind < 32 ? 1u << kind : 0, __ATOMIC_RELAXED);
    return 0;
}

int cuptiActivityDisable(uint32_t kind) {
    REFUSE;
    __atomic_fetch_and(&standin.enabled, ~(kind < 32 ? 1u << kind : 0), __ATOMIC_RELAXED);
    return 0;
}

int cuptiActivityFlushAll(uint32_t flag) {
    (void)flag;
    REFUSE;
    add(&standin.flushes, 1);
    if (!standin.hold)
        standin_fill();
    return 0;
}

int cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, uint8_t **record) {
    REFUSE;
    uint8_t *next = buffer;
    uint32_t kind;
    if (*record != NULL) {
        memcpy(&kind, *record, sizeof kind);
        next = *record + bytes_of(kind);
    }
    if (next >= buffer + valid)
        return 12;
    memcpy(&kind, next, sizeof kind);
    if (bytes_of(kind) == 0 || next + bytes_of(kind) > buffer + valid)
        return 21;
    *record = next;
    return 0;
}

int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *dropped) {
    (void)context, (void)stream;
    REFUSE;
    *dropped = (size_t)__atomic_exchange_n(&standin.dropped, 0, __ATOMIC_RELAXED);
    return 0;
}

int cuptiGetTimestamp(uint64_t *now) {
    REFUSE;
    if (__atomic_load_n(&standin.clock, __ATOMIC_RELAXED) == STANDIN_REALTIME)
        *now = read_clock(CLOCK_REALTIME);
    else
        *now = stamp(standin_now());
    return 0;
}

int cuptiActivitySetAttribute(int attribute, size_t *size, void *value) {
    (void)attribute, (void)size, (void)value;
    return standin.result;
}

int cuptiGetStreamIdEx(void *context, void *stream, uint8_t own, uint32_t *id) {
    (void)context, (void)own;
    REFUSE;
    *id = (uint32_t)(uintptr_t)stream;
    return 0;
}

#ifndef STANDIN_OLD
int cuptiActivityEnableDriverApi(uint32_t callback, uint8_t enable) {
    REFUSE;
    if (enable)
        __atomic_fetch_or(&standin.driver_calls, 1u << callback, __ATOMIC_RELAXED);
    else
        __atomic_fetch_and(&standin.driver_calls, ~(1u << callback), __ATOMIC_RELAXED);
    return 0;
}
#endif

/* ---- another profiler ---- */

static void stolen_request(uint8_t **buffer, size_t *size, size_t *most) {
    *buffer = malloc(65536);
    *size = 65536;
    *most = 0;
}

/* Kineto ignores buffers that it does not know; its own it frees. */
static uint8_t *others;
static void stolen_complete(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid) {
    (void)context, (void)stream, (void)valid;
    pthread_mutex_lock(&counters);
    if (size == 65536)
        free(buffer);
    else
        others = buffer;
    pthread_mutex_unlock(&counters);
}

void standin_steal(int stop) {
    if (!stop) {
        __atomic_store_n(&request, stolen_request, __ATOMIC_RELEASE);
        __atomic_store_n(&complete, stolen_complete, __ATOMIC_RELEASE);
    } else {
        standin_fill();
        __atomic_store_n(&standin.enabled, 0, __ATOMIC_RELAXED);
    }
}
