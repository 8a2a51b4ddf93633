/* Domains and registered strings: what programs give names to once and then
 * use by handle. Fixed tables; what finds no room is an unknown domain, or a
 * string that no rule fits. */
#ifndef ARGUS_NVTX_NAMES_H
#define ARGUS_NVTX_NAMES_H

#include <stddef.h>
#include <stdint.h>
#include <wchar.h>

#include "rules.h"

#define ARGUS_NVTX_DOMAINS 64
#define ARGUS_NVTX_STRINGS 4096

struct argus_nvtx_domain {
    size_t length;
    char name[ARGUS_PATTERN_MAX];
};

struct argus_nvtx_string {
    char *text; /* NULL: a free record */
    size_t length;
    uint32_t domain;
    int rule;
    uint64_t hash;
};

/* The default domain is 0; anything that is no handle of ours too. */
uint32_t argus_nvtx_domain_index(const void *handle);
const struct argus_nvtx_domain *argus_nvtx_domain(uint32_t index);
void *argus_nvtx_create_domain(const char *name);

/* NULL where it is no handle of ours. */
const struct argus_nvtx_string *argus_nvtx_string(const void *handle);
void *argus_nvtx_register(const struct argus_nvtx_rules *rules, uint32_t domain, const char *text);

/* As UTF-8, cut at ARGUS_NVTX_NAME_MAX bytes; the buffer holds one more. */
const char *argus_nvtx_narrow(char *buffer, const wchar_t *text);

uint64_t argus_nvtx_hash(uint32_t domain, const char *text, size_t length);

#endif
