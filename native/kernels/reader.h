/* From a buffer of CUPTI's records to histograms and the ledger. */
#ifndef ARGUS_READER_H
#define ARGUS_READER_H

#include <cstdint>

#include "clock.h"
#include "cupti_api.h"
#include "histograms.h"
#include "ledger.h"
#include "marks.h"
#include "names.h"
#include "pool.h"

namespace argus {

struct Counts {
    uint64_t records;       /* kernels, copies and memsets in the histograms */
    uint64_t dropped_time;  /* no or impossible time stamps */
    uint64_t dropped_clock; /* the clock changed while the buffer was filled */
    uint64_t broken;        /* buffers with a part that CUPTI itself can't read */
    uint64_t jit;           /* nanoseconds of CUDA's own compilation */
    uint64_t overhead;      /* nanoseconds that CUPTI says it took */
};

class Reader {
  public:
    Reader(const Cupti *cupti, const Clock *clock, const Marks *marks, Histograms *histograms, Ledger *ledger)
        : cupti_(cupti), clock_(clock), marks_(marks), histograms_(histograms), ledger_(ledger) {}

    void use(const struct argus_kernel_patterns *patterns) { names_.use(patterns); }
    /* The flight recorder's ring, which also gets every record; may be null. */
    void record_in(struct argus_flight *flight) {
        flight_ = flight;
        names_.record_in(flight);
    }
    /* Moments later than `now` are impossible. */
    void read(const Filled &filled, uint64_t now);
    const Counts &counts() const { return counts_; }
    void forget_counts() { counts_ = {}; }

  private:
    void one(const uint8_t *record);
    void copy(const uint8_t *record, uint16_t kernel_class);
    void device(const uint8_t *record, Names::Known known, uint32_t device, uint32_t stream,
                uint32_t correlation);
    void host(const uint8_t *record, uint32_t kind);

    const Cupti *cupti_;
    const Clock *clock_;
    const Marks *marks_;
    Histograms *histograms_;
    Ledger *ledger_;
    Names names_;
    struct argus_flight *flight_ = nullptr;
    Counts counts_ = {};
    uint64_t earliest_ = 0, latest_ = 0; /* possible moments, of the buffer at hand */
    bool usable_ = false;                /* the clock was the same all the time */
};

} // namespace argus

#endif
