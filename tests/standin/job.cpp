/* A small training job, and what may be done to it. */
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "driver.h"

extern "C" int InitializeInjection(void);

const char *const kGemm = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute";
const char *const kNccl = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)";

void launch(unsigned lane, const char *name, uint32_t stream, uint64_t base, uint64_t from, uint64_t to) {
    uint32_t id = standin_launch(lane, kKernel, name, stream, base + from, base + to);
    standin_call(lane, kRuntime, 211, last_boundary() + 1000, last_boundary() + 1100, id);
}

void first_kernel() { launch(0, kGemm, 7, standin_now(), 0, 1000); }

/* An iteration of 4 ms, all of whose times are known:
 *   0.0–0.5 loading (host): nothing on the device
 *   0.5–1.0 forward: gemm 0.6–1.6
 *   1.0–1.5 backward, launched by another thread: gemm 1.6–2.8, gemm 2.4–3.0 on another stream
 *   1.5–2.0 grad_sync: NCCL 2.5–3.5
 *   2.0     end of the host's work; memcpy 3.6–3.7 outside of every phase; end at 4.0
 * computing 2.4 (0.6–3.0) + 0.1, communicating 1.0 of which 0.5 alone,
 * idle 0.6 + 0.1 + 0.3 = 1.0, busy = 4.0 − 0.5 alone = 3.5. */
void iteration(unsigned others) {
    uint64_t base = last_boundary();
    auto at = [&](double ms) { return base + static_cast<uint64_t>(ms * 1e6); };
    auto until = [&](double ms) { sleep_until(at(ms)); };
    enter(kLoading, ARGUS_KIND_HOST, base);
    until(0.5);
    leave(at(0.5));
    enter(kForward, ARGUS_KIND_COMPUTE, at(0.5));
    launch(0, kGemm, 7, base, 600000, 1600000);
    until(1.0);
    leave(at(1.0));
    enter(kBackward, ARGUS_KIND_COMPUTE, at(1.0));
    launch(1, kGemm, 7, base, 1600000, 2800000);
    launch(others, kGemm, 8, base, 2400000, 3000000);
    until(1.5);
    leave(at(1.5));
    enter(kSync, ARGUS_KIND_COMMUNICATION, at(1.5));
    launch(1, kNccl, 9, base, 2500000, 3500000);
    until(2.0);
    leave(at(2.0));
    uint32_t id = standin_launch(0, kMemcpy, nullptr, 7, base + 3600000, base + 3700000);
    standin_call(0, kRuntime, 41, last_boundary() + 1000, last_boundary() + 1100, id);
    until(4.0);
    end_iteration(at(4.0));
}

namespace {

/* attribution ITERATIONS: with the driver; ARGUS_KERNEL_ATTRIBUTION chooses. */
int attribution(int argc, char **argv) {
    unsigned n = argc > 0 ? static_cast<unsigned>(atoi(argv[0])) : 8;
    standin.hold = argc > 1;
    if (!begin(true))
        return 1;
    first_kernel();
    begin_iteration();
    for (unsigned i = 0; i < n; i++) {
        iteration(2 + i % 3);
        if (standin.hold && i % 3 == 2) {
            standin_fill();
            standin_deliver(4, i);
        }
    }
    standin_fill();
    if (standin.hold)
        standin_deliver(4, 99);
    if (!told(n))
        return 1;
    report();
    return 0;
}

/* wrap: correlation ids pass 2^32 in the middle. */
int wrap(int, char **) {
    standin.correlation = UINT32_MAX - 20;
    return attribution(0, nullptr);
}

/* idle: a process that never touches the GPU. */
int idle(int, char **) {
    if (!begin(true))
        return 1;
    begin_iteration();
    for (int i = 0; i < 1000; i++) {
        enter(kForward, ARGUS_KIND_COMPUTE);
        leave();
        end_iteration();
    }
    report();
    return 0;
}

/* forked: the child traces nothing, and disturbs nothing. */
int forked(int, char **) {
    if (!begin(true))
        return 1;
    first_kernel();
    begin_iteration();
    for (int i = 0; i < 3; i++)
        iteration(2);
    pid_t child = fork();
    if (child == 0) {
        struct argus_kernels_status status;
        iteration(2);
        api->profiler(1);
        api->status(&status);
        attach();
        api->detach();
        standin_fill();
        _exit(0);
    }
    int how = -1;
    waitpid(child, &how, 0);
    for (int i = 0; i < 3; i++)
        iteration(2);
    standin_fill();
    told(6);
    report();
    return how;
}

/* injected: CUDA loads the library; the training program attaches later. */
int injected(int, char **) {
    if (InitializeInjection() != 1)
        return 1;
    uint64_t now = standin_now();
    for (int i = 0; i < 1000; i++)
        standin_launch(0, kKernel, kGemm, 7, now, now + 2000);
    standin_fill();
    if (!begin(true))
        return 1;
    begin_iteration();
    for (int i = 0; i < 4; i++)
        iteration(2);
    standin_fill();
    told(4);
    report();
    return 0;
}

/* again: a second tracer in the same process begins with nothing. */
int again(int, char **) {
    if (!begin(true))
        return 1;
    first_kernel();
    begin_iteration();
    iteration(2);
    standin_fill();
    told(1);
    api->detach();
    wait_for([] { return __atomic_load_n(&standin.enabled, __ATOMIC_RELAXED) == 0; });
    segment = {};
    attach();
    wait_for([] { return __atomic_load_n(&standin.enabled, __ATOMIC_RELAXED) != 0; });
    begin_iteration();
    uint64_t before = iterations_ended();
    for (int i = 0; i < 3; i++)
        iteration(2);
    standin_fill();
    told(before + 3);
    report();
    return 0;
}

/* contexts: two devices; after two iterations the thread that tells boundaries makes the second one's
 * context its own. */
int contexts(int, char **) {
    standin.devices = 2;
    if (!begin(true))
        return 1;
    first_kernel();
    begin_iteration();
    for (int i = 0; i < 6; i++) {
        standin.elsewhere = i >= 2;
        iteration(2);
    }
    standin_fill();
    told(6);
    report();
    return standin.pushed;
}

/* paused: what is launched in a declared pause belongs to nobody. */
int paused_work(int, char **) {
    if (!begin(true))
        return 1;
    first_kernel();
    begin_iteration();
    uint64_t base = standin_now();
    auto at = [&](double ms) { return base + static_cast<uint64_t>(ms * 1e6); };
    end_iteration(base); /* so that the second one's begin is known */
    enter(kForward, ARGUS_KIND_COMPUTE, base);
    launch(0, kGemm, 7, base, 0, 1000000);
    sleep_until(at(1));
    pause_here(at(1));
    launch(0, kGemm, 7, base, 1000000, 3000000);
    sleep_until(at(3));
    resume_here(at(3));
    launch(0, kGemm, 7, base, 3000000, 3500000);
    sleep_until(at(4));
    leave(at(4));
    end_iteration(at(4));
    standin_fill();
    told(2);
    report();
    return 0;
}

/* own: JIT and overhead records. */
int own(int, char **) {
    if (!begin(true))
        return 1;
    uint64_t now = standin_now();
    launch(0, kGemm, 7, now, 0, 1000);
    begin_iteration();
    standin_host(0, kJit, 1, now - 3 * kMillisecond, now);
    standin_host(0, kOverhead, 1u << 16, now - 500000000, now);
    standin_host(0, kOverhead, 5u << 16, now - 900000000, now); /* the program's own */
    standin_host(0, kJit, 1, now, uint64_t{1} << 63);           /* no measurements */
    standin_host(0, kOverhead, 1u << 16, now, uint64_t{1} << 63);
    iteration(2);
    standin_fill();
    told(1);
    report();
    return 0;
}

/* pieces: one iteration with many more kernels than can be kept, in many phases. */
int pieces(int, char **) {
    if (!begin(true))
        return 1;
    first_kernel();
    begin_iteration();
    uint64_t launched = 1;
    for (int i = 0; i < 40; i++) {
        enter(kForward, ARGUS_KIND_COMPUTE);
        uint64_t base = standin_now();
        for (unsigned k = 0; k < 20000; k++)
            standin_launch(0, kKernel, kGemm, 7, base + k * 10, base + k * 10 + 10);
        launched += 20000;
        sleep_until(base + 200000);
        leave();
        standin_fill();
        counted(launched);
    }
    end_iteration();
    standin_fill();
    told(1);
    report();
    return 0;
}

/* overflow: more kernels in one phase than can be kept, then good iterations. */
int overflow(int, char **) {
    if (!begin(true))
        return 1;
    first_kernel();
    begin_iteration();
    enter(kForward, ARGUS_KIND_COMPUTE);
    for (int i = 0; i < 300000; i++) {
        uint64_t now = standin_now();
        standin_launch(0, kKernel, kGemm, 7, now - 1000, now);
        if (i % 20000 == 19999)
            counted(static_cast<uint64_t>(i) - 10000);
    }
    leave();
    end_iteration();
    for (int i = 2; i <= 4; i++) { /* those that began before the loss was noticed can't be told either */
        iteration(2);
        standin_fill();
        told(static_cast<uint64_t>(i));
    }
    report();
    return 0;
}

} // namespace

const Named job_scenarios[] = {
    {"attribution", attribution}, {"wrap", wrap},         {"idle", idle},   {"forked", forked},
    {"injected", injected},       {"again", again},       {"paused", paused_work}, {"own", own},
    {"contexts", contexts}, {"pieces", pieces},           {"overflow", overflow}, {nullptr, nullptr},
};
