/* What the phase extension and the kernel library tell each other.
 *
 * The library (libargus_kernels.so) may be loaded long before the extension,
 * by CUDA_INJECTION64_PATH, so the two meet through one table of functions.
 * boundary() is called by one thread at a time (the GIL's holder); nothing here
 * waits for the GPU, calls back into Python or fails loudly. */
#ifndef ARGUS_KERNELS_API_H
#define ARGUS_KERNELS_API_H

#include <stddef.h>
#include <stdint.h>

#include "flight.h"
#include "layout.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ARGUS_KERNELS_API 1u
#define ARGUS_NO_PHASE UINT32_MAX

/* The records of a segment that the library writes, from attach to detach. */
struct argus_kernels_target {
    struct argus_source *source;
    struct argus_device *device;
    struct argus_kernel *kernels;                  /* ARGUS_MAX_KERNEL_CLASSES */
    struct argus_device_phase *phases;             /* ARGUS_DEVICE_PHASES */
    struct argus_device_iteration *iterations;     /* ARGUS_ITERATION_SLOTS */
    struct argus_flight *flight;                   /* NULL: no flight recorder */
};

enum argus_boundary_type {
    ARGUS_BOUNDARY_PHASE = 0, /* another phase is on top now */
    ARGUS_BOUNDARY_BEGIN = 1, /* an iteration begins here, and not where the last one ended */
    ARGUS_BOUNDARY_END = 2,   /* an iteration ends here, and the next one begins */
};

/* A moment from which on the process is in another phase or iteration. */
struct argus_boundary {
    uint64_t now;        /* CLOCK_MONOTONIC */
    uint64_t ordinal;    /* END: the iteration's, as in argus_iteration */
    uint32_t type;       /* enum argus_boundary_type */
    uint32_t phase;      /* on top from here on, ARGUS_NO_PHASE: none */
    uint32_t kind;       /* its enum argus_kind */
    uint32_t occurrence; /* counts the occurrences of phases: the same again when a nested one ended */
    uint32_t depth;      /* open phases, 0: none */
    uint32_t paused;     /* within a declared pause */
};

struct argus_kernels_status {
    uint32_t state;       /* enum argus_kernels_state */
    uint32_t attribution; /* enum argus_attribution, 0: not chosen yet */
    uint64_t events, dropped, buffers;
    char message[256]; /* why it is off, or what it noticed last; empty: nothing */
};

enum argus_kernels_state {
    ARGUS_KERNELS_OFF = 0,     /* never started, or off after trouble */
    ARGUS_KERNELS_ON = 1,
    ARGUS_KERNELS_ASIDE = 2,   /* another profiler has CUPTI for now */
};

struct argus_kernels_api {
    uint32_t version; /* ARGUS_KERNELS_API */
    /* Loads CUPTI and begins to record; once is enough.  `cupti`: a copy to
     * take where none is in the process, may be NULL.  Returns 0, or -1 with
     * the reason in status().message. */
    int (*start)(const char *cupti);
    /* `capturing` tells, for the calling thread, whether a CUDA graph is being
     * captured; NULL: nobody knows. */
    void (*attach)(const struct argus_kernels_target *target, int (*capturing)(void));
    /* Returns when nothing of the target is written any more. */
    void (*detach)(void);
    void (*boundary)(const struct argus_boundary *boundary);
    /* Whether torch.profiler is recording: the library stands aside meanwhile. */
    void (*profiler)(int active);
    void (*status)(struct argus_kernels_status *status);
    /* Ends the library's thread; for tests. */
    void (*shutdown)(void);
};

/* The exported symbol.  NULL: the library is of another version. */
const struct argus_kernels_api *argus_kernels_get(uint32_t version);

#ifdef __cplusplus
}
#endif
#endif
