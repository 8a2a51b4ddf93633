/* How a test drives the stand-in for CUPTI and the CUDA driver.
 *
 * What a test "launches" becomes records in buffers that the stand-in asks for
 * through the registered callbacks, as CUPTI does: a place in the launching
 * lane's (thread's) buffer at the launch, the buffer given back when it is full
 * or flushed, late and in any order, from other threads.  Times are
 * CLOCK_MONOTONIC here, and in the records what the clock in force makes of
 * them. */
#ifndef STANDIN_H
#define STANDIN_H

#include <stddef.h>
#include <stdint.h>

#define STANDIN_LANES 8

enum standin_clock {
    STANDIN_REALTIME = 0, /* CUPTI's default */
    STANDIN_TICKS = 1,    /* a registered callback that counts 2.1 ticks a nanosecond */
};

struct standin {
    int result;              /* what every call returns, if not 0: 15 or 999 without a driver */
    int enable_result;       /* what cuptiActivityEnable alone returns */
    unsigned kernel_bytes;   /* 200 (CUPTI 11.8), 208 (12), 248 (13.5) */
    int hold;                /* full buffers wait for standin_deliver() */
    int deaf;                /* marks leave no record */
    int capturing;           /* the legacy stream would join a capture */
    int memset_error;        /* what cuMemsetD32Async returns */
    int no_context;          /* no context is current */
    int elsewhere;           /* another context is current than the one that was there first */
    int pushed;              /* contexts pushed and not popped */
    uint32_t devices;        /* kernels of stream s run on device s modulo this; 0: all on device 0 */
    int clock;               /* enum standin_clock */
    uint32_t correlation;    /* of the last launch */
    uint32_t enabled;        /* bits: activity kinds */
    uint32_t driver_calls;   /* bit 2: records of cuDriverGetVersion */
    uint64_t records, dropped, flushes, registrations, memsets, pushes;
};

/* The one stand-in of the process: set before the library starts, or while
 * nothing runs. */
extern struct standin standin;

/* An operation of the device; returns its correlation id.  kind: the activity
 * kind; start 0: no time stamp could be had. */
uint32_t standin_launch(unsigned lane, uint32_t kind, const char *name, uint32_t stream, uint64_t start,
                        uint64_t end);
/* The same with the correlation id given. */
void standin_record(unsigned lane, uint32_t kind, const char *name, uint32_t stream, uint64_t start, uint64_t end,
                    uint32_t correlation);
/* A call of the runtime or driver, with the id of what it launches. */
void standin_call(unsigned lane, uint32_t kind, uint32_t callback, uint64_t start, uint64_t end, uint32_t id);
/* CUPTI's own: JIT, or overhead of a kind. */
void standin_host(unsigned lane, uint32_t kind, uint32_t which, uint64_t start, uint64_t end);

/* Gives back what is held, from so many threads, in random order. */
void standin_deliver(unsigned threads, unsigned seed);
/* Every lane's buffer counts as full. */
void standin_fill(void);
/* Another profiler registers its own callbacks, and disables all kinds when it stops. */
void standin_steal(int stop);
/* The lane that the calling thread's marks and calls go to. */
void standin_use_lane(unsigned lane);

uint64_t standin_now(void);

#endif
