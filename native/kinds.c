/* Kinds of phases by name. */
#include <string.h>

#include "python.h"

static const char *const kind_names[] = {"compute", "host", "communication", "mixed"};

/* Names as the integrations and the recorded traces use them. */
static const char *const host_names[] = {
    "checkpoint", "data", "data_load", "data_loading", "dataloader", "gc", "gpu_idle", "jit_compile",
};
static const char *const communication_names[] = {
    "all_gather", "all_reduce", "all_to_all", "allgather", "allreduce", "alltoall", "barrier", "broadcast",
    "buffer_sync", "gather", "grad_sync", "irecv", "isend", "p2p", "recv", "reduce", "reduce_scatter",
    "reducescatter", "scatter", "send", "send_recv",
};

static int among(struct argus_text name, const char *const *names, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (strlen(names[i]) == name.length && memcmp(names[i], name.data, name.length) == 0)
            return 1;
    return 0;
}

#define COUNT(array) (sizeof(array) / sizeof *(array))

int argus_kind_from_text(struct argus_text text, uint64_t *kind) {
    for (size_t i = 0; i < COUNT(kind_names); i++)
        if (among(text, &kind_names[i], 1)) {
            *kind = i;
            return 0;
        }
    return -1;
}

const char *argus_kind_name(uint64_t kind) { return kind_names[kind < COUNT(kind_names) ? kind : ARGUS_KIND_MIXED]; }

uint64_t argus_infer_kind(struct argus_text name) {
    if (among(name, host_names, COUNT(host_names)))
        return ARGUS_KIND_HOST;
    if (among(name, communication_names, COUNT(communication_names)))
        return ARGUS_KIND_COMMUNICATION;
    return among(name, (const char *const[]){"other"}, 1) ? ARGUS_KIND_MIXED : ARGUS_KIND_COMPUTE;
}
