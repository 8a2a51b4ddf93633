#include "driver.h"

#include <dlfcn.h>
#include <time.h>

#include <cstdlib>
#include <cstring>
#include <initializer_list>

Segment segment;
const struct argus_kernels_api *api;

namespace {

struct Open {
    uint32_t phase, kind, occurrence;
};
Open stack[64];
uint32_t depth, occurrences, paused;
uint64_t ordinal, last;

uint64_t load(const uint64_t *word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }

void tell(uint32_t type, uint64_t now) {
    struct argus_boundary boundary = {};
    boundary.now = last = now == 0 ? standin_now() : now;
    boundary.type = type;
    boundary.phase = depth == 0 ? ARGUS_NO_PHASE : stack[depth - 1].phase;
    boundary.kind = depth == 0 ? uint32_t{ARGUS_KIND_COMPUTE} : stack[depth - 1].kind;
    boundary.occurrence = depth == 0 ? 0 : stack[depth - 1].occurrence;
    boundary.depth = depth;
    boundary.paused = paused;
    if (type == ARGUS_BOUNDARY_END)
        boundary.ordinal = ++ordinal;
    api->boundary(&boundary);
}

} // namespace

void sleep_ns(uint64_t nanoseconds) {
    struct timespec pause = {static_cast<time_t>(nanoseconds / 1000000000u),
                             static_cast<long>(nanoseconds % 1000000000u)};
    nanosleep(&pause, nullptr);
}

void sleep_until(uint64_t moment) {
    struct timespec until = {static_cast<time_t>(moment / 1000000000u), static_cast<long>(moment % 1000000000u)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr);
}

void begin_iteration(uint64_t now) { tell(ARGUS_BOUNDARY_BEGIN, now); }
void end_iteration(uint64_t now) { tell(ARGUS_BOUNDARY_END, now); }
uint64_t last_boundary() { return last == 0 ? standin_now() : last; }
uint64_t iterations_ended() { return ordinal; }

void enter(uint32_t phase, uint32_t kind, uint64_t now) {
    stack[depth++] = {phase, kind, ++occurrences};
    tell(ARGUS_BOUNDARY_PHASE, now);
}

void leave(uint64_t now) {
    depth--;
    tell(ARGUS_BOUNDARY_PHASE, now);
}

void pause_here(uint64_t now) {
    paused = 1;
    tell(ARGUS_BOUNDARY_PHASE, now);
}

void resume_here(uint64_t now) {
    paused = 0;
    tell(ARGUS_BOUNDARY_PHASE, now);
}

bool told(uint64_t iterations) {
    return wait_for([&] {
        uint64_t last = load(&segment.device.iterations);
        uint64_t ended = load(&segment.device.incomplete);
        for (uint64_t n = 1; n <= last; n++)
            ended += load(&segment.iterations[(n - 1) % ARGUS_ITERATION_SLOTS].ordinal) == n;
        return last >= iterations || ended >= iterations;
    });
}

bool counted(uint64_t records) {
    return wait_for([&] { /* what the segment shows is up to date only now and then */
        struct argus_kernels_status status;
        api->status(&status);
        return status.events >= records;
    });
}

void attach(int (*capturing)(void)) {
    static struct argus_flight flight;
    flight = {};
    flight.events = segment.events;
    flight.ring = &segment.ring;
    flight.names = segment.names;
    flight.mask = kEvents - 1;
    flight.most_names = ARGUS_FLIGHT_NAMES;
    struct argus_kernels_target target = {&segment.source, &segment.device,    segment.kernels,
                                          segment.phases,  segment.iterations, &flight};
    api->attach(&target, capturing);
}

bool begin(bool with_driver, int (*capturing)(void)) {
    const char *driver = getenv("STANDIN_CUDA");
    if (with_driver && (driver == nullptr || dlopen(driver, RTLD_NOW | RTLD_LOCAL) == nullptr)) {
        fprintf(stderr, "driver: no stand-in for libcuda: %s\n", dlerror());
        return false;
    }
    if (api->start(nullptr) != 0)
        return false;
    attach(capturing);
    return true;
}

namespace {

void report_seconds(const struct argus_histogram &histogram) {
    uint64_t count = 0;
    for (uint64_t bucket : histogram.bucket)
        count += bucket;
    printf("\"count\": %llu, \"sum\": %llu", static_cast<unsigned long long>(count),
           static_cast<unsigned long long>(histogram.sum));
}

void report_phases(const char *name, const uint64_t *phases) {
    const char *comma = "";
    printf("\"%s\": {", name);
    for (unsigned p = 0; p < ARGUS_DEVICE_PHASES; p++) {
        if (phases[p] == 0)
            continue;
        printf("%s\"%u\": %llu", comma, p, static_cast<unsigned long long>(phases[p]));
        comma = ", ";
    }
    printf("}");
}

void report_device() {
    const uint64_t *word = &segment.device.classes_used;
    static const char *const names[] = {"classes_used", "attribution",   "records",      "iterations",
                                        "incomplete",   "gaps",          "gap",          "jit",
                                        "busy",         "marks",        "memory",        "dropped_cupti", "dropped_time",
                                        "dropped_clock", "dropped_late", "dropped_pending"};
    static_assert(sizeof names / sizeof *names == sizeof(struct argus_device) / 8);
    printf("\"device\": {");
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        printf("%s\"%s\": %llu", i == 0 ? "" : ", ", names[i], static_cast<unsigned long long>(word[i]));
    printf("},\n");
}

} // namespace

void report() {
    struct argus_kernels_status status;
    api->status(&status);
    uint32_t enabled = __atomic_load_n(&standin.enabled, __ATOMIC_ACQUIRE);
    uint64_t flushes = load(&standin.flushes);
    api->detach(); /* brings everything up to date */
    printf("{\"state\": %u, \"message\": \"%s\",\n", status.state, status.message);
    report_device();
    printf("\"source\": {\"events\": %llu, \"dropped\": %llu, \"cost\": %llu, \"enabled\": %llu},\n",
           static_cast<unsigned long long>(segment.source.events),
           static_cast<unsigned long long>(segment.source.dropped),
           static_cast<unsigned long long>(segment.source.cost),
           static_cast<unsigned long long>(segment.source.enabled));
    printf("\"standin\": {\"enabled\": %u, \"memsets\": %llu, \"flushes\": %llu, \"registrations\": %llu, "
           "\"records\": %llu, \"pushes\": %llu},\n",
           enabled, static_cast<unsigned long long>(load(&standin.memsets)),
           static_cast<unsigned long long>(flushes), static_cast<unsigned long long>(load(&standin.registrations)),
           static_cast<unsigned long long>(load(&standin.records)),
           static_cast<unsigned long long>(load(&standin.pushes)));
    const char *comma = "";
    printf("\"classes\": {");
    for (const struct argus_kernel &kernel : segment.kernels) {
        if (kernel.seconds.sum == 0)
            continue;
        printf("%s\"%s\": {", comma, kernel.name);
        report_seconds(kernel.seconds);
        printf(", \"window\": [%llu, %llu, %llu, %llu]}", static_cast<unsigned long long>(kernel.window_count),
               static_cast<unsigned long long>(kernel.window_quantile[0]),
               static_cast<unsigned long long>(kernel.window_quantile[1]),
               static_cast<unsigned long long>(kernel.window_quantile[2]));
        comma = ", ";
    }
    printf("},\n\"phases\": {");
    comma = "";
    for (unsigned p = 0; p < ARGUS_DEVICE_PHASES; p++) {
        if (segment.phases[p].seconds.sum == 0)
            continue;
        printf("%s\"%u\": {", comma, p);
        report_seconds(segment.phases[p].seconds);
        printf("}");
        comma = ", ";
    }
    printf("},\n\"flight\": [");
    comma = "";
    for (uint64_t n = segment.ring.head > 5 ? segment.ring.head - 5 : 0; n < segment.ring.head; n++) {
        const struct argus_flight_event &event = segment.events[n % kEvents];
        uint64_t name = event.what >> 16 & 0xffff;
        printf("%s[%llu, %llu, \"%s\", %llu, %llu, %llu]", comma, static_cast<unsigned long long>(event.what & 0xff),
               static_cast<unsigned long long>(event.what >> 8 & 0xff),
               name < segment.ring.names ? segment.names[name].text : "",
               static_cast<unsigned long long>(event.what >> 32),
               static_cast<unsigned long long>(event.duration), static_cast<unsigned long long>(event.value));
        comma = ", ";
    }
    printf("],\n\"iterations\": [");
    comma = "";
    for (uint64_t n = 1; n <= segment.device.iterations; n++) {
        const struct argus_device_iteration &slot = segment.iterations[(n - 1) % ARGUS_ITERATION_SLOTS];
        if (slot.ordinal != n)
            continue;
        printf("%s\n{\"ordinal\": %llu, \"attributed\": %llu, \"idle\": %llu, \"busy\": %llu, \"jit\": %llu, ",
               comma, static_cast<unsigned long long>(n), static_cast<unsigned long long>(slot.attributed),
               static_cast<unsigned long long>(slot.idle), static_cast<unsigned long long>(slot.busy),
               static_cast<unsigned long long>(slot.jit));
        report_phases("compute", slot.compute);
        printf(", ");
        report_phases("communication", slot.communication);
        printf("}");
        comma = ",";
    }
    printf("]}\n");
}

int main(int argc, char **argv) {
    api = argus_kernels_get(ARGUS_KERNELS_API);
    for (const Named *list : {job_scenarios, trap_scenarios, record_scenarios})
        for (const Named *scenario = list; argc > 1 && scenario->name != nullptr; scenario++)
            if (std::strcmp(scenario->name, argv[1]) == 0) {
                int failure = scenario->run(argc - 2, argv + 2);
                api->shutdown();
                return failure;
            }
    fprintf(stderr, "driver: which scenario?\n");
    return 2;
}
