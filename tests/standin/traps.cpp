/* Trouble: no driver, marks that fail, other profilers. */
#include <cstdlib>

#include "driver.h"

namespace {

/* result CODE: every call returns it. */
int result(int, char **argv) {
    standin.result = atoi(argv[0]);
    bool on = begin(false);
    report();
    return on;
}

/* refused CODE: only enabling fails. */
int refused(int, char **argv) {
    standin.enable_result = atoi(argv[0]);
    bool on = begin(false);
    report();
    return on;
}

/* deaf: marks leave no record, so another way must be found. */
int deaf(int, char **) {
    standin.deaf = 1;
    if (!begin(true))
        return 1;
    first_kernel();
    begin_iteration();
    unsigned n = 0;
    /* memset and call are both refuted; the records of launches remain. */
    for (; n < 60 && __atomic_load_n(&segment.device.iterations, __ATOMIC_ACQUIRE) == 0; n++) {
        iteration(2);
        standin_fill();
        sleep_ns(5 * kMillisecond);
    }
    report();
    return 0;
}

/* broken: the driver refuses memsets from some moment on. */
int broken(int, char **) {
    if (!begin(true))
        return 1;
    first_kernel();
    begin_iteration();
    for (int i = 0; i < 12; i++) {
        if (i == 4)
            standin.memset_error = 709; /* CUDA_ERROR_CONTEXT_IS_DESTROYED */
        iteration(2);
    }
    standin_fill();
    told(12);
    report();
    return 0;
}

int capture_now;
int capturing() { return capture_now; }

/* capture: iterations 4 and 5 have marks skipped, for a graph is captured. */
int capture(int argc, char **) {
    if (!begin(true, capturing))
        return 1;
    first_kernel();
    begin_iteration();
    for (int i = 1; i <= 10; i++) {
        capture_now = argc == 0 && i == 4;
        standin.capturing = argc != 0 && i == 4;
        iteration(2);
    }
    standin_fill();
    told(10);
    report();
    return 0;
}

/* profiler TOLD: torch.profiler records three iterations of ten; TOLD 0: nobody says so. */
int profiler(int, char **argv) {
    bool tell = atoi(argv[0]) != 0;
    if (!begin(true))
        return 1;
    first_kernel();
    begin_iteration();
    for (int i = 0; i < 5; i++)
        iteration(2);
    standin_fill();
    told(5);
    standin_steal(0);
    if (tell)
        api->profiler(1);
    for (int i = 0; i < 5; i++)
        iteration(2);
    standin_steal(1);
    if (tell)
        api->profiler(0);
    wait_for([&] {
        if (!tell)
            iteration(2);
        return __atomic_load_n(&standin.registrations, __ATOMIC_RELAXED) > 1 &&
               __atomic_load_n(&standin.enabled, __ATOMIC_RELAXED) != 0;
    });
    sleep_ns(50 * kMillisecond);
    uint64_t before = iterations_ended();
    for (int i = 0; i < 6; i++)
        iteration(2);
    standin_fill();
    wait_for([&] { return __atomic_load_n(&segment.device.iterations, __ATOMIC_ACQUIRE) >= before + 6; });
    report();
    return 0;
}

} // namespace

const Named trap_scenarios[] = {
    {"result", result},   {"refused", refused},   {"deaf", deaf},       {"broken", broken},
    {"capture", capture}, {"profiler", profiler}, {nullptr, nullptr},
};
