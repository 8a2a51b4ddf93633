// Writes kernels into a ring as the kernel library does, then prints its memory: ring, events, names.
#include <cstdio>
#include <cstring>
#include <vector>

#include "flight.h"

int main() {
    const unsigned events = 64, most_names = 4;
    std::vector<argus_flight_event> event(events);
    std::vector<argus_flight_name> name(most_names);
    argus_flight_ring ring = {};
    argus_flight flight = {};
    flight.events = event.data();
    flight.names = name.data();
    flight.ring = &ring;
    flight.mask = events - 1;
    flight.most_names = most_names;

    const char *const kernels[] = {"gemm_kernel", "softmax<float>", "ncclDevKernel_AllReduce"};
    for (unsigned i = 0; i < 100; i++) {
        const char *kernel = kernels[i % 3];
        unsigned number = argus_flight_intern(&flight, kernel, strlen(kernel));
        argus_flight_add(&flight, ARGUS_FLIGHT_ON_DEVICE, i % 3, number, 7 + i % 2, 1000 * i, 900, 1ull << 32 | i);
    }
    char text[200];
    memset(text, 'x', sizeof text);
    unsigned fourth = argus_flight_intern(&flight, text, sizeof text); // too long: cut
    unsigned fifth = argus_flight_intern(&flight, "one too many", 12);
    unsigned again = argus_flight_intern(&flight, "gemm_kernel", 11);
    if (fourth != 3 || fifth != ARGUS_FLIGHT_NO_NAME || again != 0 || argus_flight_capacity(100) != 64)
        return 1;
    argus_flight nothing = {};
    if (argus_flight_intern(&nothing, "none", 4) != ARGUS_FLIGHT_NO_NAME)
        return 1;
    fwrite(&ring, sizeof ring, 1, stdout);
    fwrite(event.data(), sizeof event[0], events, stdout);
    fwrite(name.data(), sizeof name[0], most_names, stdout);
    return 0;
}
