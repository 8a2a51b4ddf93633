/* The tracer's way to the kernel library, if there is one. */
#ifndef ARGUS_KERNELS_LINK_H
#define ARGUS_KERNELS_LINK_H

#include "kernels_api.h"
#include "segment.h"
#include "tracer.h"

/* Not NULL: the library is recording, and segments have sections for it. */
extern const struct argus_kernels_api *argus_kernels;
/* Not NULL: a segment is attached. */
extern const struct argus_kernels_api *argus_kernels_attached;

/* Whether torch captures a CUDA graph in this thread; whether torch.profiler
 * records.  NULL: nobody knows. */
extern int (*argus_is_capturing)(void);
extern int (*argus_is_profiling)(void);

/* Loads the library and starts it.  Returns NULL, or why it is off (static
 * text, or the library's). */
const char *argus_kernels_start(const char *library, const char *cupti);

/* Asks Python whether torch.profiler records, and tells the library. */
void argus_kernels_ask_profiler(void);

void argus_kernels_attach(struct argus_segment *segment);
void argus_kernels_detach(void);

/* A boundary (enum argus_boundary_type) at this moment, after which the tracer
 * is as it is now. */
void argus_kernels_boundary(const struct argus_tracer *tracer, uint32_t type, uint64_t now);

static inline void argus_kernels_tell(const struct argus_tracer *tracer, uint32_t type, uint64_t now) {
    if (argus_kernels_attached != NULL)
        argus_kernels_boundary(tracer, type, now);
}

#endif
