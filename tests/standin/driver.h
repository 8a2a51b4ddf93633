/* A process that is traced, as small as it gets: a segment's records in plain
 * memory, and the boundaries that the phase extension would tell. */
#ifndef DRIVER_H
#define DRIVER_H

#include <cstdint>
#include <cstdio>

#include "../../native/kernel_classes.h"
#include "../../native/kernels_api.h"

extern "C" {
#include "standin.h"
}

constexpr uint64_t kMicrosecond = 1000, kMillisecond = 1000000;

constexpr uint32_t kEvents = 4096;

struct Segment {
    struct argus_source source;
    struct argus_device device;
    struct argus_kernel kernels[ARGUS_MAX_KERNEL_CLASSES];
    struct argus_device_phase phases[ARGUS_DEVICE_PHASES];
    struct argus_device_iteration iterations[ARGUS_ITERATION_SLOTS];
    struct argus_flight_ring ring;
    struct argus_flight_event events[kEvents];
    struct argus_flight_name names[ARGUS_FLIGHT_NAMES];
};

extern Segment segment;
extern const struct argus_kernels_api *api;

/* Starts the library and attaches the segment; with_driver: a stand-in for
 * libcuda is in the process. */
bool begin(bool with_driver, int (*capturing)(void) = nullptr);
void attach(int (*capturing)(void) = nullptr);
/* Prints everything as JSON. */
void report();

/* Boundaries at a given moment, or now. */
void begin_iteration(uint64_t now = 0);
void end_iteration(uint64_t now = 0);
void enter(uint32_t phase, uint32_t kind, uint64_t now = 0);
void leave(uint64_t now = 0);
void pause_here(uint64_t now = 0);
void resume_here(uint64_t now = 0);
uint64_t iterations_ended();
uint64_t last_boundary(); /* when it was, or now if there was none */

/* Waits until what is asked for is true; false after 20 s. */
template <typename Condition>
bool wait_for(Condition condition);
bool told(uint64_t iterations);    /* so many were told or counted as incomplete */
bool counted(uint64_t records);    /* so many kernels, copies and memsets */
void sleep_ns(uint64_t nanoseconds);
void sleep_until(uint64_t moment);

template <typename Condition>
bool wait_for(Condition condition) {
    for (int i = 0; i < 10000; i++) {
        if (condition())
            return true;
        sleep_ns(2 * kMillisecond);
    }
    fprintf(stderr, "driver: what was waited for did not happen\n");
    return false;
}

constexpr uint32_t kKernel = 10, kMemcpy = 1, kMemset = 2, kRuntime = 5, kOverhead = 17, kJit = 52;
constexpr uint32_t kForward = 0, kBackward = 1, kSync = 2, kLoading = 3;
extern const char *const kGemm, *const kNccl;

/* One operation that ran from `from` to `to` nanoseconds after `base`. */
void launch(unsigned lane, const char *name, uint32_t stream, uint64_t base, uint64_t from, uint64_t to);
/* A kernel, so that the GPU is in use from here on. */
void first_kernel();
/* An iteration whose device times are all known (job.cpp); `others`: a lane. */
void iteration(unsigned others);

using Scenario = int (*)(int argc, char **argv);
struct Named {
    const char *name;
    Scenario run;
};
/* Ends with a null name. */
extern const Named job_scenarios[], trap_scenarios[], record_scenarios[];

#endif
