/* Records: many, damaged, of a trace; and what one costs. */
#include <pthread.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "driver.h"

namespace {

struct Load {
    unsigned lane;
    unsigned records;
    bool patient;
};

uint64_t events() {
    struct argus_kernels_status status;
    api->status(&status);
    return status.events;
}

constexpr unsigned kNames = 64;
char names[kNames][32];

void *produce(void *argument) {
    Load *load = static_cast<Load *>(argument);
    for (unsigned i = 0; i < load->records; i++) {
        uint64_t start = standin_now() - 100000;
        standin_launch(load->lane, i % 10 == 9 ? kMemcpy : i % 10 == 8 ? kMemset : kKernel, names[i % kNames],
                       7 + load->lane, start, start + 1000 + i % 1000);
        if (load->patient && i % 500 == 499) /* a GPU would take its time as well */
            wait_for([] { return events() + 40000 > __atomic_load_n(&standin.records, __ATOMIC_RELAXED); });
    }
    return nullptr;
}

void make_names() {
    static const char *const heads[] = {"gemm_", "flash_fwd_kernel_", "ncclDevKernel_AllReduce_", "unheard_of_"};
    for (unsigned i = 0; i < kNames; i++)
        snprintf(names[i], sizeof names[i], "%s%u", heads[i % 4], i);
}

/* count THREADS RECORDS PATIENT: everything is counted, from several threads at
 * once; impatient ones produce more than can be read, and what is lost is counted too. */
int count(int, char **argv) {
    unsigned threads = static_cast<unsigned>(atoi(argv[0])), each = static_cast<unsigned>(atoi(argv[1]));
    make_names();
    if (!begin(false))
        return 1;
    pthread_t thread[STANDIN_LANES];
    Load load[STANDIN_LANES];
    for (unsigned t = 0; t < threads; t++) {
        load[t] = {t, each, atoi(argv[2]) != 0};
        pthread_create(&thread[t], nullptr, produce, &load[t]);
    }
    for (unsigned t = 0; t < threads; t++)
        pthread_join(thread[t], nullptr);
    standin_fill();
    bool done = wait_for([&] { /* what CUPTI dropped is asked for now and then */
        return __atomic_load_n(&segment.device.records, __ATOMIC_RELAXED) +
                   __atomic_load_n(&segment.device.dropped_cupti, __ATOMIC_RELAXED) ==
               uint64_t{threads} * each;
    });
    if (!done)
        return 1;
    report();
    return 0;
}

/* exhaust: nothing is given back, so no buffer is left. */
int exhaust(int, char **) {
    standin.hold = 1;
    if (!begin(false))
        return 1;
    uint64_t now = standin_now();
    for (int i = 0; i < 100000; i++)
        standin_launch(0, kKernel, kGemm, 7, now, now + 1000);
    if (!wait_for([] { return __atomic_load_n(&segment.device.dropped_cupti, __ATOMIC_RELAXED) != 0; }))
        return 1;
    standin_fill();
    uint64_t kept = standin.records;
    standin_deliver(3, 1);
    counted(kept);
    report();
    return 0;
}

/* stamps: no time stamps, impossible ones, and good ones, of each ten. */
int stamps(int, char **) {
    if (!begin(false))
        return 1;
    uint64_t now = standin_now();
    for (int i = 0; i < 10; i++) {
        standin_launch(0, kKernel, kGemm, 7, 0, 0);
        standin_launch(0, kKernel, kGemm, 7, now, now - 1);
        standin_launch(0, kKernel, kGemm, 7, now + 3600000 * kMillisecond, now + 3600001 * kMillisecond);
        standin_launch(0, kKernel, kGemm, 7, now, now + 5000);
        standin_launch(0, kMemcpy, nullptr, 7, now, now + 7000);
    }
    standin_fill();
    counted(20);
    report();
    return 0;
}

/* clock: another profiler leaves a clock of ticks behind. */
int clock_change(int, char **) {
    if (!begin(false))
        return 1;
    uint64_t now = standin_now();
    for (int i = 0; i < 100; i++)
        standin_launch(0, kKernel, kGemm, 7, now, now + 10000);
    standin_fill();
    counted(100);
    standin_launch(0, kKernel, kGemm, 7, now, now + 10000); /* under way when the clock changes */
    __atomic_store_n(&standin.clock, int{STANDIN_TICKS}, __ATOMIC_RELAXED);
    standin_launch(0, kKernel, kGemm, 7, now, now + 10000);
    standin_fill();
    wait_for([] { return __atomic_load_n(&segment.device.dropped_clock, __ATOMIC_RELAXED) != 0; });
    /* Until the new clock's rate is known, nothing can be told. */
    wait_for([&] {
        now = standin_now();
        for (int i = 0; i < 100; i++)
            standin_launch(0, kKernel, kGemm, 7, now - 20000, now - 10000);
        standin_fill();
        sleep_ns(20 * kMillisecond);
        return __atomic_load_n(&segment.device.records, __ATOMIC_RELAXED) > 300;
    });
    report();
    return 0;
}

/* names: a pointer is used again for another kernel. */
int reused(int, char **) {
    char name[64] = "volta_sgemm_128x64_nn";
    if (!begin(false))
        return 1;
    uint64_t now = standin_now();
    for (int i = 0; i < 10; i++)
        standin_launch(0, kKernel, name, 7, now, now + 1000);
    standin_fill();
    counted(10);
    std::strcpy(name, "flash_fwd_kernel");
    for (int i = 0; i < 10; i++)
        standin_launch(0, kKernel, name, 7, now, now + 1000);
    standin_launch(0, kKernel, nullptr, 7, now, now + 1000);
    standin_fill();
    counted(21);
    report();
    return 0;
}

/* shape: five iterations whose gemm kernels are known, for the quantiles. */
int shape(int, char **) {
    if (!begin(true))
        return 1;
    launch(0, "of_no_class", 7, standin_now(), 0, 1000);
    begin_iteration();
    uint64_t launched = 1;
    for (int i = 0; i < 5; i++) {
        uint64_t base = standin_now() - 100 * kMillisecond;
        for (unsigned k = 0; k < 100; k++) /* 90 of 100 us, 9 of 1 ms, 1 of 10 ms */
            standin_launch(0, kKernel, kGemm, 7, base,
                           base + (k < 90 ? 100000 : k < 99 ? 1000000 : 10000000));
        launched += 100;
        end_iteration();
        standin_fill();
        counted(launched);
        told(static_cast<uint64_t>(i) + 1);
    }
    report();
    return 0;
}

struct Step {
    char what;
    unsigned lane, kind, stream;
    unsigned long long host, start, end;
    char name[1024];
};

bool next_step(FILE *file, Step *step) {
    return fscanf(file, " %c %u %u %u %llu %llu %llu %1023[^\n]", &step->what, &step->lane, &step->kind,
                  &step->stream, &step->host, &step->start, &step->end, step->name) == 8;
}

/* Names live as long as the process, as CUPTI's do. */
const char *keep(const char *name) {
    static char *kept[4096];
    static unsigned count;
    for (unsigned i = 0; i < count; i++)
        if (std::strcmp(kept[i], name) == 0)
            return kept[i];
    return count < 4096 ? kept[count++] = strdup(name) : "";
}

/* replay FILE HOLD: launches and boundaries of a recorded trace, in its own time.
 * L launches; I and J begin and end iterations, B and E phases (stream: the kind). */
int replay(int, char **argv) {
    FILE *file = fopen(argv[0], "r");
    standin.hold = atoi(argv[1]);
    if (file == nullptr || !begin(true))
        return 1;
    first_kernel();
    Step step;
    const uint64_t base = standin_now() + 5 * kMillisecond;
    uint64_t delivered = base, last_end = 0;
    while (next_step(file, &step)) {
        uint64_t host = base + step.host;
        if (host > standin_now() + (step.what == 'L' ? 200 * kMicrosecond : 0))
            sleep_until(host);
        switch (step.what) {
        case 'L': {
            uint32_t id = standin_launch(step.lane, step.kind, keep(step.name), step.stream, base + step.start,
                                         base + step.end);
            standin_call(step.lane, kRuntime, 211, host, host + 1000, id);
            last_end = base + step.end > last_end ? base + step.end : last_end;
            break;
        }
        case 'I':
            begin_iteration(host);
            break;
        case 'J':
            end_iteration(host);
            break;
        case 'B':
            enter(step.kind, step.stream, host);
            break;
        default:
            leave(host);
        }
        uint64_t now = standin_now();
        if (standin.hold && now > delivered + 50 * kMillisecond && now > last_end) {
            standin_fill();
            standin_deliver(4, static_cast<unsigned>(now));
            delivered = now;
        }
    }
    fclose(file);
    sleep_until(last_end);
    standin_fill();
    if (standin.hold)
        standin_deliver(4, 1);
    told(iterations_ended());
    report();
    return 0;
}

/* bench NAMES ROUNDS: nanoseconds of the library's thread for one record. */
int bench(int, char **argv) {
    const unsigned distinct = static_cast<unsigned>(atoi(argv[0])), rounds = static_cast<unsigned>(atoi(argv[1]));
    constexpr unsigned kIterations = 8, kKernels = 6000; /* fewer than buffers hold at once */
    char **long_names = static_cast<char **>(calloc(distinct, sizeof(char *)));
    for (unsigned i = 0; i < distinct; i++) {
        long_names[i] = static_cast<char *>(malloc(320));
        snprintf(long_names[i], 320,
                 "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>, "
                 "std::array<char*, 3ul>, variant_%u>(int, at::native::CUDAFunctor_add<c10::BFloat16>, "
                 "std::array<char*, 3ul>)", i);
    }
    if (!begin(true))
        return 1;
    first_kernel();
    begin_iteration();
    double best = 1e9;
    uint64_t launched = 1, random = 1;
    for (unsigned r = 0; r < rounds; r++) {
        uint64_t cost = __atomic_load_n(&segment.source.cost, __ATOMIC_RELAXED);
        for (unsigned i = 0; i < kIterations; i++) {
            for (unsigned k = 0; k < kKernels; k++) {
                if (k % (kKernels / 6) == 0) {
                    if (k != 0)
                        leave();
                    enter(k / (kKernels / 6), ARGUS_KIND_COMPUTE);
                }
                random = random * 6364136223846793005u + 1442695040888963407u;
                uint64_t now = standin_now();
                standin_launch(0, kKernel, long_names[(random >> 33) % distinct], 7, now - 400, now - (random >> 60));
            }
            leave();
            end_iteration();
        }
        launched += uint64_t{kIterations} * kKernels;
        standin_fill();
        if (!counted(launched))
            return 1;
        wait_for([&] { /* until the cost is published as well */
            return __atomic_load_n(&segment.source.last_event, __ATOMIC_RELAXED) != 0 &&
                   __atomic_load_n(&segment.source.events, __ATOMIC_RELAXED) >= launched;
        });
        cost = __atomic_load_n(&segment.source.cost, __ATOMIC_RELAXED) - cost;
        double each = static_cast<double>(cost) / (kIterations * kKernels);
        best = each < best ? each : best;
    }
    printf("{\"names\": %u, \"records\": %llu, \"ns_per_record\": %.1f, \"memory\": %llu}\n", distinct,
           static_cast<unsigned long long>(launched), best,
           static_cast<unsigned long long>(segment.device.memory));
    return 0;
}

long resident_pages() {
    long pages = 0, ignored = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file != nullptr && fscanf(file, "%ld %ld", &ignored, &pages) != 2)
        pages = 0;
    if (file != nullptr)
        fclose(file);
    return pages;
}

/* soak RECORDS: resident memory while so many records pass, in iterations of 5,000. */
int soak(int, char **argv) {
    const uint64_t records = strtoull(argv[0], nullptr, 10);
    make_names();
    if (!begin(true))
        return 1;
    first_kernel();
    begin_iteration();
    printf("{\"records\": %llu, \"resident_bytes\": [", static_cast<unsigned long long>(records));
    for (uint64_t i = 1; i <= records; i++) {
        uint64_t now = standin_now();
        standin_launch(0, kKernel, names[i % kNames], 7, now - 200, now);
        if (i % 5000 == 0)
            end_iteration();
        if (i % 500 == 0)
            wait_for([i] { return events() + 30000 > i; });
        if (i % (records / 10) == 0)
            printf("%s%ld", i == records / 10 ? "" : ", ", resident_pages() * sysconf(_SC_PAGESIZE));
    }
    standin_fill();
    counted(records + 1);
    api->detach();
    printf("], \"counted\": %llu, \"dropped\": %llu}\n",
           static_cast<unsigned long long>(segment.device.records - 1),
           static_cast<unsigned long long>(segment.source.dropped));
    return 0;
}

/* edges N: what a phase's begin and end cost the training thread, before the GPU
 * is in use and after, without what the driver takes for a mark. */
int edges(int, char **argv) {
    const unsigned n = static_cast<unsigned>(atoi(argv[0]));
    double best[2] = {1e9, 1e9};
    if (!begin(true))
        return 1;
    for (int used = 0; used < 2; used++) {
        for (int round = 0; round < 10; round++) {
            begin_iteration();
            uint64_t start = standin_now();
            for (unsigned i = 0; i < n; i++) {
                enter(kForward, ARGUS_KIND_COMPUTE, start);
                leave(start);
            }
            double each = static_cast<double>(standin_now() - start) / n;
            best[used] = each < best[used] ? each : best[used];
            end_iteration();
            standin_fill();
            if (used)
                sleep_ns(300 * kMillisecond); /* the ring of boundaries must not be full */
        }
        first_kernel();
    }
    printf("{\"ns_before\": %.1f, \"ns_after\": %.1f}\n", best[0], best[1]);
    return 0;
}

} // namespace

const Named record_scenarios[] = {
    {"count", count},  {"exhaust", exhaust}, {"stamps", stamps}, {"clock", clock_change}, {"names", reused},
    {"shape", shape},  {"replay", replay},   {"bench", bench},   {"soak", soak},
    {"edges", edges},  {nullptr, nullptr},
};
