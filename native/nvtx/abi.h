/* The part of NVTX's binary interface (versions 2 and 3) that a tool sees: a
 * program's NVTX functions go through tables of pointers, which the tool fills
 * in when the program first calls one of them. */
#ifndef ARGUS_NVTX_ABI_H
#define ARGUS_NVTX_ABI_H

#include <stddef.h>
#include <stdint.h>
#include <wchar.h>

#define NVTX_CALLBACKS 1 /* the export table that we ask for */

enum nvtx_module { NVTX_CORE = 1, NVTX_CORE2 = 5 };

/* Indices into the table of NVTX_CORE. */
enum nvtx_core {
    NVTX_MARK_EX = 1,
    NVTX_MARK_A = 2,
    NVTX_MARK_W = 3,
    NVTX_RANGE_START_EX = 4,
    NVTX_RANGE_START_A = 5,
    NVTX_RANGE_START_W = 6,
    NVTX_RANGE_END = 7,
    NVTX_RANGE_PUSH_EX = 8,
    NVTX_RANGE_PUSH_A = 9,
    NVTX_RANGE_PUSH_W = 10,
    NVTX_RANGE_POP = 11,
};

/* Indices into the table of NVTX_CORE2. */
enum nvtx_core2 {
    NVTX_DOMAIN_MARK_EX = 1,
    NVTX_DOMAIN_RANGE_START_EX = 2,
    NVTX_DOMAIN_RANGE_END = 3,
    NVTX_DOMAIN_RANGE_PUSH_EX = 4,
    NVTX_DOMAIN_RANGE_POP = 5,
    NVTX_DOMAIN_REGISTER_STRING_A = 10,
    NVTX_DOMAIN_REGISTER_STRING_W = 11,
    NVTX_DOMAIN_CREATE_A = 12,
    NVTX_DOMAIN_CREATE_W = 13,
};

enum nvtx_message { NVTX_ASCII = 1, NVTX_WIDE = 2, NVTX_REGISTERED = 3 };

struct nvtx_attributes {
    uint16_t version;
    uint16_t size; /* of the caller's structure */
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type;
    int32_t reserved;
    uint64_t payload;
    int32_t message_type; /* enum nvtx_message; 0: none */
    const void *message;
};

#define NVTX_NOT_TRACKED (-2) /* what a push or pop returns where nobody counts levels */

typedef void (*nvtx_function)(void);

struct nvtx_callbacks {
    size_t size;
    /* 1: *table is the module's table of *count pointers to its function pointers. */
    int (*module)(int module, nvtx_function ***table, unsigned *count);
};

typedef const void *(*nvtx_export)(uint32_t table);

#endif
