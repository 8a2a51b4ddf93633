/* A stand-in for libnvidia-ml.so.1: GPUs that answer what a test put in, in NVML's own units.
 *
 * What was not put in is not supported, as with a real GPU.  A GPU can be lost,
 * can hold every call about it until it is released, and can report an Xid. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6,
       INSUFFICIENT_SIZE = 7, TIMEOUT = 10,
       GPU_IS_LOST = 15 };

#define GPUS 8
#define VALUES 128
#define INSTANCES 8
#define EVENTS 16

struct value { char key[48]; unsigned long long number; };

struct gpu {
    int is_instance; /* of MIG: has a UUID only */
    char uuid[64], bus[32], name[64];
    struct value values[VALUES];
    struct gpu *instances[INSTANCES];
};

struct event { struct gpu *device; unsigned long long type, data; unsigned gpu_instance, compute_instance; };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct gpu gpus[GPUS];
static int lost[GPUS], held[GPUS], waiting[GPUS];
static unsigned count;
static int init_result, inits, shutdowns, unloaded;
static struct event events[EVENTS];
static int event_count;

/* --- what the tests say --- */

void standin_reset(unsigned number) {
    pthread_mutex_lock(&lock);
    memset(gpus, 0, sizeof gpus);
    memset(lost, 0, sizeof lost);
    memset(held, 0, sizeof held);
    for (unsigned i = 0; i < number; i++) {
        snprintf(gpus[i].uuid, sizeof gpus[i].uuid, "GPU-00000000-0000-0000-0000-%012u", i);
        snprintf(gpus[i].bus, sizeof gpus[i].bus, "00000000:%02X:00.0", 0x3A + i);
        snprintf(gpus[i].name, sizeof gpus[i].name, "Stand-in \"H100\"");
    }
    count = number;
    event_count = init_result = inits = shutdowns = unloaded = 0;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

void standin_set(unsigned gpu, const char *key, unsigned long long number) {
    pthread_mutex_lock(&lock);
    for (int i = 0; i < VALUES; i++) {
        struct value *value = &gpus[gpu].values[i];
        if (value->key[0] == '\0' || strcmp(value->key, key) == 0) {
            snprintf(value->key, sizeof value->key, "%s", key);
            value->number = number;
            break;
        }
    }
    pthread_mutex_unlock(&lock);
}

/* Other texts, UTF-8 or not, and another number of GPUs than there are. */
void standin_text(unsigned gpu, const char *uuid, const char *bus, const char *name) {
    snprintf(gpus[gpu].uuid, sizeof gpus[gpu].uuid, "%s", uuid);
    snprintf(gpus[gpu].bus, sizeof gpus[gpu].bus, "%s", bus);
    snprintf(gpus[gpu].name, sizeof gpus[gpu].name, "%s", name);
}
void standin_claim(unsigned number) { count = number; }

void standin_unload(int is_unloaded) { unloaded = is_unloaded; }
void standin_lose(unsigned gpu, int is_lost) { lost[gpu] = is_lost; }

void standin_hold(unsigned gpu, int is_held) {
    pthread_mutex_lock(&lock);
    held[gpu] = is_held;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

int standin_waiting(unsigned gpu) { return waiting[gpu]; }
void standin_init_result(int result) { init_result = result; }
int standin_inits(void) { return inits; }
int standin_shutdowns(void) { return shutdowns; }

void standin_instance(unsigned gpu, unsigned index, const char *uuid) {
    struct gpu *instance = calloc(1, sizeof *instance);
    instance->is_instance = 1;
    snprintf(instance->uuid, sizeof instance->uuid, "%s", uuid);
    gpus[gpu].instances[index] = instance; /* never freed: handles stay valid */
}

void standin_xid(unsigned gpu, unsigned long long xid) {
    pthread_mutex_lock(&lock);
    if (event_count < EVENTS)
        events[event_count++] = (struct event){&gpus[gpu], 8, xid, ~0u, ~0u};
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

/* STANDIN_NVML="2 0:temperature.0=61 1:clock.1=1980": for a process of its own. */
__attribute__((constructor)) static void from_environment(void) {
    const char *given = getenv("STANDIN_NVML");
    if (given == NULL)
        return;
    char *text = strdup(given), *rest = text, *word = strsep(&rest, " ");
    standin_reset((unsigned)atoi(word));
    while ((word = strsep(&rest, " ")) != NULL) {
        unsigned gpu;
        char key[48];
        unsigned long long number;
        if (sscanf(word, "%u:%47[^=]=%llu", &gpu, key, &number) == 3 && gpu < GPUS)
            standin_set(gpu, key, number);
    }
    free(text);
}

/* --- what NVML answers --- */

static int ask(struct gpu *gpu, const char *key, unsigned long long *number) {
    int result = NOT_SUPPORTED;
    pthread_mutex_lock(&lock);
    if (!gpu->is_instance) {
        long index = gpu - gpus;
        waiting[index]++;
        while (held[index])
            pthread_cond_wait(&changed, &lock);
        waiting[index]--;
        if (lost[index] || unloaded) {
            pthread_mutex_unlock(&lock);
            return unloaded ? UNINITIALIZED : GPU_IS_LOST;
        }
    }
    for (int i = 0; i < VALUES && gpu->values[i].key[0] != '\0'; i++)
        if (strcmp(gpu->values[i].key, key) == 0) {
            *number = gpu->values[i].number;
            result = SUCCESS;
        }
    pthread_mutex_unlock(&lock);
    return result;
}

static int ask_u32(struct gpu *gpu, const char *key, unsigned *number) {
    unsigned long long wide = 0;
    int result = ask(gpu, key, &wide);
    *number = (unsigned)wide;
    return result;
}

static int ask_numbered(struct gpu *gpu, const char *key, unsigned a, unsigned long long *number) {
    char name[48];
    snprintf(name, sizeof name, "%s.%u", key, a);
    return ask(gpu, name, number);
}

static int ask_numbered_u32(struct gpu *gpu, const char *key, unsigned a, unsigned *number) {
    unsigned long long wide = 0;
    int result = ask_numbered(gpu, key, a, &wide);
    *number = (unsigned)wide;
    return result;
}

static const char *const errors[] = {"Success", "Uninitialized", "Invalid Argument", "Not Supported"};
const char *nvmlErrorString(int result) {
    return result == GPU_IS_LOST ? "GPU is lost" : result >= 0 && result < 4 ? errors[result] : "Stand-in error";
}

int nvmlInitWithFlags(unsigned flags) {
    unsigned long long nothing;
    (void)flags;
    ask(&gpus[GPUS - 1], "init", &nothing); /* held with the last GPU */
    inits += init_result == SUCCESS;
    return init_result;
}

int nvmlShutdown(void) {
    shutdowns++;
    return SUCCESS;
}

int nvmlSystemGetDriverVersion(char *version, unsigned length) {
    snprintf(version, length, "570.00.01");
    return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned *number) {
    *number = count;
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct gpu **device) {
    if (index >= count || index >= GPUS || gpus[index].uuid[0] == '\0')
        return INVALID_ARGUMENT;
    *device = &gpus[index];
    return lost[index] ? GPU_IS_LOST : SUCCESS;
}

int nvmlDeviceGetUUID(struct gpu *gpu, char *uuid, unsigned length) {
    snprintf(uuid, length, "%s", gpu->uuid);
    return SUCCESS;
}

int nvmlDeviceGetName(struct gpu *gpu, char *name, unsigned length) {
    snprintf(name, length, "%s", gpu->name);
    return SUCCESS;
}

struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; };

int nvmlDeviceGetPciInfo_v3(struct gpu *gpu, struct pci *pci) {
    memset(pci, 0, sizeof *pci);
    snprintf(pci->bus_id, sizeof pci->bus_id, "%s", gpu->bus);
    return SUCCESS;
}

#define NUMBERED(function, key)                                                              \
    int function(struct gpu *gpu, unsigned which, unsigned *number) {                        \
        return ask_numbered_u32(gpu, key, which, number);                                    \
    }
#define SIMPLE(function, key)                                                                \
    int function(struct gpu *gpu, unsigned *number) { return ask_u32(gpu, key, number); }

NUMBERED(nvmlDeviceGetClockInfo, "clock")
NUMBERED(nvmlDeviceGetMaxClockInfo, "max_clock")
NUMBERED(nvmlDeviceGetTemperature, "temperature")
NUMBERED(nvmlDeviceGetTemperatureThreshold, "threshold")
NUMBERED(nvmlDeviceGetNvLinkState, "link")
SIMPLE(nvmlDeviceGetPowerUsage, "power")
SIMPLE(nvmlDeviceGetEnforcedPowerLimit, "power_limit")
SIMPLE(nvmlDeviceGetPcieReplayCounter, "pcie_replays")
SIMPLE(nvmlDeviceGetCurrPcieLinkGeneration, "pcie_generation")
SIMPLE(nvmlDeviceGetMaxPcieLinkGeneration, "pcie_max_generation")
SIMPLE(nvmlDeviceGetCurrPcieLinkWidth, "pcie_width")
SIMPLE(nvmlDeviceGetMaxPcieLinkWidth, "pcie_max_width")

int nvmlDeviceGetTotalEnergyConsumption(struct gpu *gpu, unsigned long long *energy) {
    return ask(gpu, "energy", energy);
}

int nvmlDeviceGetCurrentClocksThrottleReasons(struct gpu *gpu, unsigned long long *reasons) {
    return ask(gpu, "reasons", reasons);
}

int nvmlDeviceGetViolationStatus(struct gpu *gpu, unsigned policy, unsigned long long *times) {
    times[0] = 1;
    return ask_numbered(gpu, "violation", policy, &times[1]);
}

int nvmlDeviceGetTotalEccErrors(struct gpu *gpu, unsigned kind, unsigned lifetime, unsigned long long *errors_) {
    return ask_numbered(gpu, kind == 0 ? "ecc_corrected" : "ecc_uncorrected", lifetime, errors_);
}

int nvmlDeviceGetRemappedRows(struct gpu *gpu, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
                              unsigned *failed) {
    int result = ask_u32(gpu, "rows_corrected", corrected);
    ask_u32(gpu, "rows_uncorrected", uncorrected);
    ask_u32(gpu, "rows_pending", pending);
    ask_u32(gpu, "rows_failed", failed);
    return result;
}

int nvmlDeviceGetNvLinkErrorCounter(struct gpu *gpu, unsigned link, unsigned counter, unsigned long long *number) {
    char key[48];
    snprintf(key, sizeof key, "link_errors.%u.%u", link, counter);
    return ask(gpu, key, number);
}

struct field {
    unsigned id, scope;
    int64_t timestamp, latency;
    unsigned type;
    int result;
    union { double d; unsigned u; unsigned long long ull; } value;
};

int nvmlDeviceGetFieldValues(struct gpu *gpu, int number, struct field *fields) {
    for (int i = 0; i < number; i++) {
        unsigned long long wide = 0;
        fields[i].result = ask_numbered(gpu, "field", fields[i].id, &wide);
        if (fields[i].result == GPU_IS_LOST)
            return GPU_IS_LOST;
        fields[i].type = fields[i].id == 82 ? 1 : 3; /* memory temperature: unsigned int */
        if (fields[i].type == 1)
            fields[i].value.u = (unsigned)wide;
        else
            fields[i].value.ull = wide;
    }
    return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(struct gpu *gpu, unsigned *rates) {
    ask_u32(gpu, "utilization_memory", &rates[1]);
    return ask_u32(gpu, "utilization", &rates[0]);
}

struct process { unsigned pid; unsigned long long memory; unsigned gpu_instance, compute_instance; };

int nvmlDeviceGetComputeRunningProcesses_v3(struct gpu *gpu, unsigned *number, struct process *processes) {
    unsigned running = 0, room = *number;
    int result = ask_u32(gpu, "processes", &running);
    if (result != SUCCESS)
        return result;
    *number = running;
    if (running > room)
        return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < running; i++)
        processes[i] = (struct process){100 + i, 1 << 20, ~0u, ~0u};
    return SUCCESS;
}

int nvmlDeviceGetMigMode(struct gpu *gpu, unsigned *current, unsigned *pending) {
    *pending = 0;
    return ask_u32(gpu, "mig", current);
}

int nvmlDeviceGetMaxMigDeviceCount(struct gpu *gpu, unsigned *number) {
    (void)gpu;
    *number = INSTANCES;
    return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(struct gpu *gpu, unsigned index, struct gpu **instance) {
    *instance = gpu->instances[index];
    return *instance == NULL ? NOT_FOUND : SUCCESS;
}

int nvmlEventSetCreate(void **set) {
    *set = events;
    return SUCCESS;
}

int nvmlEventSetFree(void *set) { return set == events ? SUCCESS : INVALID_ARGUMENT; }

int nvmlDeviceRegisterEvents(struct gpu *gpu, unsigned long long types, void *set) {
    unsigned long long supported = 0;
    ask(gpu, "events", &supported);
    return set == events && (types & supported) == types ? SUCCESS : NOT_SUPPORTED;
}

int nvmlEventSetWait_v2(void *set, struct event *event, unsigned milliseconds) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += (long)(milliseconds % 1000) * 1000000;
    until.tv_sec += milliseconds / 1000 + until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&lock);
    while (event_count == 0 && pthread_cond_timedwait(&changed, &lock, &until) == 0)
        ;
    int result = set != events ? INVALID_ARGUMENT : event_count == 0 ? TIMEOUT : SUCCESS;
    if (result == SUCCESS) {
        *event = events[0];
        memmove(events, events + 1, (size_t)--event_count * sizeof *events);
    }
    pthread_mutex_unlock(&lock);
    return result;
}
