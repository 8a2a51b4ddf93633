/* A segment's life: memory or file, lock, end. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "guard.h"
#include "kernels_link.h"
#include "segment.h"
#include "sequence.h"

#define TOUCH_EVERY 30000000000u /* ns */

unsigned argus_epoch;

static void after_fork_in_child(void) { argus_epoch++; }

static uint64_t read_clock(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t argus_monotonic_ns(void) { return read_clock(CLOCK_MONOTONIC); }

struct plan {
    struct argus_section section[ARGUS_MAX_SECTIONS];
    unsigned sections;
    size_t bytes;
};

static void place(struct plan *plan, uint32_t id, size_t record_bytes, uint32_t records) {
    plan->section[plan->sections++] = (struct argus_section){
        .id = id, .record_bytes = (uint32_t)record_bytes, .records = records, .offset = plan->bytes};
    plan->bytes = (plan->bytes + record_bytes * records + 63) & ~(size_t)63;
}

/* The flight recorder comes last, with the stacks: who wants the rest need not read it. */
static const struct flight_sections {
    uint32_t events, names, most_names;
} flight_sections[ARGUS_FLIGHT_WRITERS] = {
    {ARGUS_SECTION_FLIGHT_EVENTS, ARGUS_SECTION_FLIGHT_NAMES, 16}, /* kinds of pauses */
    {ARGUS_SECTION_FLIGHT_KERNELS, ARGUS_SECTION_FLIGHT_KERNEL_NAMES, ARGUS_FLIGHT_NAMES},
};

static void place_flight(struct plan *plan, const struct argus_flight_sizes *sizes) {
    if (sizes->events[ARGUS_FLIGHT_TRACER] == 0 && sizes->events[ARGUS_FLIGHT_KERNEL] == 0)
        return;
    place(plan, ARGUS_SECTION_FLIGHT, sizeof(struct argus_flight_ring), ARGUS_FLIGHT_WRITERS);
    for (unsigned i = 0; i < ARGUS_FLIGHT_WRITERS; i++) {
        const struct flight_sections *its = &flight_sections[i];
        if (sizes->events[i] == 0)
            continue;
        place(plan, its->events, sizeof(struct argus_flight_event), argus_flight_capacity(sizes->events[i]));
        place(plan, its->names, sizeof(struct argus_flight_name), its->most_names);
    }
}

/* Decides where everything goes; `device`: with the kernel library's sections,
 * `stacks`: with the stack sampler's. */
static struct plan make_plan(int device, const struct argus_flight_sizes *flight, int stacks) {
    struct plan plan = {.bytes = (sizeof(struct argus_header) + 63) & ~(size_t)63};
    place(&plan, ARGUS_SECTION_IDENTITY, sizeof(struct argus_identity), 1);
    place(&plan, ARGUS_SECTION_STATE, sizeof(struct argus_state), 1);
    place(&plan, ARGUS_SECTION_ITERATION_HISTOGRAM, sizeof(struct argus_histogram), 1);
    place(&plan, ARGUS_SECTION_PHASES, sizeof(struct argus_phase), ARGUS_MAX_PHASES);
    place(&plan, ARGUS_SECTION_COLLECTIVES, sizeof(struct argus_collective), ARGUS_MAX_COLLECTIVES);
    place(&plan, ARGUS_SECTION_ITERATIONS, sizeof(struct argus_iteration), ARGUS_ITERATION_SLOTS);
    place(&plan, ARGUS_SECTION_WORK, sizeof(struct argus_work), ARGUS_MAX_WORK);
    place(&plan, ARGUS_SECTION_WORK_ITERATIONS, sizeof(struct argus_work_iteration), ARGUS_ITERATION_SLOTS);
    place(&plan, ARGUS_SECTION_SOURCES, sizeof(struct argus_source), ARGUS_MAX_SOURCES);
    if (device) {
        place(&plan, ARGUS_SECTION_KERNELS, sizeof(struct argus_kernel), ARGUS_MAX_KERNEL_CLASSES);
        place(&plan, ARGUS_SECTION_DEVICE, sizeof(struct argus_device), 1);
        place(&plan, ARGUS_SECTION_DEVICE_PHASES, sizeof(struct argus_device_phase), ARGUS_DEVICE_PHASES);
        place(&plan, ARGUS_SECTION_DEVICE_ITERATIONS, sizeof(struct argus_device_iteration),
              ARGUS_ITERATION_SLOTS);
    }
    if (stacks)
        place(&plan, ARGUS_SECTION_STACKS, sizeof(struct argus_stacks), 1);
    place_flight(&plan, flight);
    if (stacks)
        place(&plan, ARGUS_SECTION_STACK_GENERATIONS, sizeof(struct argus_stack_generation),
              ARGUS_STACK_GENERATIONS);
    return plan;
}

static void *section(const struct argus_segment *segment, const struct plan *plan, uint32_t id) {
    for (unsigned i = 0; i < plan->sections; i++)
        if (plan->section[i].id == id)
            return segment->base + plan->section[i].offset;
    return NULL;
}

static void find_sections(struct argus_segment *segment, const struct plan *plan) {
    segment->header = (void *)segment->base;
    segment->identity = section(segment, plan, ARGUS_SECTION_IDENTITY);
    segment->state = section(segment, plan, ARGUS_SECTION_STATE);
    segment->iteration_seconds = section(segment, plan, ARGUS_SECTION_ITERATION_HISTOGRAM);
    segment->phases = section(segment, plan, ARGUS_SECTION_PHASES);
    segment->collectives = section(segment, plan, ARGUS_SECTION_COLLECTIVES);
    segment->iterations = section(segment, plan, ARGUS_SECTION_ITERATIONS);
    segment->work = section(segment, plan, ARGUS_SECTION_WORK);
    segment->work_iterations = section(segment, plan, ARGUS_SECTION_WORK_ITERATIONS);
    segment->sources = section(segment, plan, ARGUS_SECTION_SOURCES);
    segment->kernels = section(segment, plan, ARGUS_SECTION_KERNELS);
    segment->device_state = section(segment, plan, ARGUS_SECTION_DEVICE);
    segment->device_phases = section(segment, plan, ARGUS_SECTION_DEVICE_PHASES);
    segment->device_iterations = section(segment, plan, ARGUS_SECTION_DEVICE_ITERATIONS);
    segment->stacks = section(segment, plan, ARGUS_SECTION_STACKS);
    segment->stack_generations = section(segment, plan, ARGUS_SECTION_STACK_GENERATIONS);
}

static void find_flight(struct argus_segment *segment, const struct plan *plan,
                        const struct argus_flight_sizes *sizes) {
    struct argus_flight_ring *rings = section(segment, plan, ARGUS_SECTION_FLIGHT);
    for (unsigned i = 0; i < ARGUS_FLIGHT_WRITERS; i++) {
        struct argus_flight *flight = &segment->flight[i];
        if (sizes->events[i] == 0)
            continue;
        flight->events = section(segment, plan, flight_sections[i].events);
        flight->names = section(segment, plan, flight_sections[i].names);
        flight->ring = &rings[i];
        flight->mask = argus_flight_capacity(sizes->events[i]) - 1;
        flight->most_names = flight_sections[i].most_names;
    }
}

static void fill(struct argus_segment *segment, const struct plan *plan, uint64_t created) {
    struct argus_header *header = segment->header;
    header->layout_version = ARGUS_LAYOUT_VERSION;
    header->byte_order = ARGUS_BYTE_ORDER;
    header->header_bytes = sizeof *header;
    header->sections = plan->sections;
    header->total_bytes = plan->bytes;
    header->incarnation = read_clock(CLOCK_REALTIME);
    header->created = created ? created : argus_monotonic_ns();
    argus_copy_text(header->writer_version, sizeof header->writer_version, ARGUS_VERSION, strlen(ARGUS_VERSION));
    memcpy(header->section, plan->section, sizeof plan->section);

    segment->state->run_state = ARGUS_STATE_RUNNING;
    segment->state->open_phase = UINT64_MAX;
    struct argus_phase *other = &segment->phases[ARGUS_OTHER_PHASE];
    argus_copy_text(other->name, sizeof other->name, "other", 5);
    other->kind = ARGUS_KIND_MIXED;
    segment->kind[ARGUS_OTHER_PHASE] = ARGUS_KIND_MIXED;
}

static int lock_whole_file(int fd) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(fd, F_SETLK, &lock);
}

/* posix_fallocate, not ftruncate: where memory is short it fails here, and not
 * by SIGBUS at the first store. */
static int reserve(int fd, size_t bytes) {
    int failure;
    do
        failure = posix_fallocate(fd, 0, (off_t)bytes);
    while (failure == EINTR);
    return failure;
}

static int open_file(struct argus_segment *segment, const char *temporary) {
    struct stat status;
    segment->fd = open(temporary, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0640);
    if (segment->fd < 0)
        return errno;
    if (fchmod(segment->fd, 0640) < 0 || fstat(segment->fd, &status) < 0 || lock_whole_file(segment->fd) < 0)
        return errno;
    segment->device = status.st_dev;
    segment->inode = status.st_ino;
    return reserve(segment->fd, segment->bytes);
}

static int map_memory(struct argus_segment *segment) {
    int flags = segment->fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED | MAP_POPULATE;
    void *memory = mmap(NULL, segment->bytes, PROT_READ | PROT_WRITE, flags, segment->fd, 0);
    if (memory == MAP_FAILED)
        return errno;
    segment->base = memory;
    return 0;
}

/* Everything given back; returns the failure that led here. */
static int give_up(struct argus_segment *segment, char *temporary, int failure) {
    if (segment->base != NULL) {
        argus_guard_remove(segment->base);
        munmap(segment->base, segment->bytes);
        segment->base = NULL;
    }
    if (segment->fd >= 0) {
        unlink(temporary);
        close(segment->fd);
        segment->fd = -1;
    }
    free(segment->path);
    segment->path = NULL;
    free(temporary);
    return failure;
}

int argus_segment_create(struct argus_segment *segment, const char *path, uint64_t created,
                         struct argus_flight_sizes flight, int stacks) {
    static int watching_forks;
    struct plan plan = make_plan(argus_kernels != NULL, &flight, stacks);
    char *temporary = NULL;
    int failure = 0;

    if (!watching_forks) {
        if (pthread_atfork(NULL, NULL, after_fork_in_child) != 0)
            return ENOMEM;
        watching_forks = 1;
    }
    memset(segment, 0, sizeof *segment);
    segment->fd = -1;
    segment->epoch = argus_epoch;
    segment->random = 0x9e3779b9u;
    segment->bytes = plan.bytes;

    if (path != NULL) {
        size_t length = strlen(path) + sizeof ".tmp";
        segment->path = strdup(path);
        temporary = malloc(length);
        if (segment->path == NULL || temporary == NULL)
            return give_up(segment, temporary, ENOMEM);
        snprintf(temporary, length, "%s.tmp", path);
        failure = open_file(segment, temporary);
        if (failure == EEXIST) { /* not ours to remove */
            free(temporary);
            return give_up(segment, NULL, failure);
        }
    }
    if (failure == 0)
        failure = map_memory(segment);
    if (failure != 0)
        return give_up(segment, temporary, failure);
    if (path != NULL)
        argus_guard_add(segment->base, segment->bytes, segment->fd, &segment->lost);

    find_sections(segment, &plan);
    find_flight(segment, &plan, &flight);
    fill(segment, &plan, created);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    memcpy(segment->header->magic, ARGUS_MAGIC, sizeof segment->header->magic);
    if (path != NULL && rename(temporary, path) < 0)
        return give_up(segment, temporary, errno);
    free(temporary);
    return 0;
}

/* Only the file that is ours: another rank's may have taken the name. */
static void remove_file(const struct argus_segment *segment) {
    struct stat status;
    if (lstat(segment->path, &status) == 0 && status.st_dev == segment->device &&
        status.st_ino == segment->inode)
        unlink(segment->path);
}

void argus_segment_touch(struct argus_segment *segment) {
    uint64_t now = argus_monotonic_ns();
    if (segment->fd < 0 || now - segment->touched < TOUCH_EVERY)
        return;
    segment->touched = now;
    futimens(segment->fd, NULL);
}

void argus_segment_close(struct argus_segment *segment, uint64_t state) {
    if (segment->base == NULL)
        return;
    if (argus_segment_writable(segment)) {
        argus_segment_open_phase(segment, -1, 0);
        if (state != 0)
            argus_publish(&segment->state->run_state, state);
        if (segment->fd >= 0 && state == ARGUS_STATE_ENDED)
            remove_file(segment);
    }
    if (segment->fd >= 0) {
        argus_guard_remove(segment->base);
        close(segment->fd);
        segment->fd = -1;
    }
    munmap(segment->base, segment->bytes);
    segment->base = NULL;
    free(segment->path);
    segment->path = NULL;
}
