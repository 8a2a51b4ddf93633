/* The lock of the tracer where NVTX may call it.
 *
 * The GIL keeps the tracer's callers apart.  Callers of NVTX don't hold it, so
 * in a process that was started with NVTX_INJECTION64_PATH everybody takes this
 * lock as well, for one event at a time; elsewhere it costs a branch.
 *
 * Nothing of Python is called while it is held: whoever waits for it may hold
 * the GIL.  It does not nest. */
#ifndef ARGUS_TRACER_LOCK_H
#define ARGUS_TRACER_LOCK_H

#include <pthread.h>

extern int argus_shared; /* decided when the library is loaded */
extern pthread_mutex_t argus_mutex;
/* The event at hand is NVTX's: its thread may not call Python.  Under the lock. */
extern int argus_without_gil;

static inline void argus_lock(void) {
    if (argus_shared)
        pthread_mutex_lock(&argus_mutex);
}

static inline void argus_unlock(void) {
    if (argus_shared)
        pthread_mutex_unlock(&argus_mutex);
}

#endif
