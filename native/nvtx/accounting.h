/* From ranges that have a rule to the tracer, under its lock. */
#ifndef ARGUS_NVTX_ACCOUNTING_H
#define ARGUS_NVTX_ACCOUNTING_H

#include "events.h"
#include "thread.h"
#include "tracer.h"

/* Between the two, nothing of Python may be called (lock.h). */
struct argus_tracer *argus_nvtx_enter(void);
void argus_nvtx_leave(void);

/* The thread sees the tracer started for the first time. */
void argus_nvtx_begin_generation(struct argus_nvtx_thread *thread);
/* The source's counters; under the lock, and only while the tracer is active. */
void argus_nvtx_publish(const struct argus_tracer *tracer);

/* `open` has its rule; the rest is filled in. */
void argus_nvtx_begin(struct argus_nvtx_open *open, struct argus_nvtx_message message);
void argus_nvtx_end(const struct argus_nvtx_open *open);
/* Where a moment, not a range, is between two iterations. */
void argus_nvtx_end_iteration(void);

#endif
