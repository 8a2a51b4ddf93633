#define _GNU_SOURCE
#include "names.h"

#include <stdlib.h>
#include <string.h>

#include "lock.h"
#include "lookup.h"

/* 0 is the default domain, and stands for all that found no room. */
static struct argus_nvtx_domain domains[ARGUS_NVTX_DOMAINS];
static uint32_t domains_used = 1;
static struct argus_nvtx_string strings[ARGUS_NVTX_STRINGS];
#define PROBES 16 /* a program that registers without end must not search long */
static struct argus_nvtx_string no_string = {.rule = ARGUS_NVTX_RULE_NONE};

/* Multiply and fold, eight bytes at a time: names differ in every bit that counts. */
static uint64_t fold(uint64_t a, uint64_t b) {
    __extension__ typedef unsigned __int128 wide;
    wide product = (wide)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

uint64_t argus_nvtx_hash(uint32_t domain, const char *text, size_t length) {
    const uint64_t odd[2] = {0x9e3779b97f4a7c15, 0xd6e8feb86659fd93};
    uint64_t hash = odd[0] ^ length ^ (uint64_t)domain << 32, word;
    for (; length >= sizeof word; text += sizeof word, length -= sizeof word) {
        memcpy(&word, text, sizeof word);
        hash = fold(hash ^ word, odd[1]);
    }
    word = 0;
    memcpy(&word, text, length);
    return fold(fold(hash ^ word, odd[1]), odd[0]);
}

const char *argus_nvtx_narrow(char *buffer, const wchar_t *text) {
    size_t at = 0;
    for (; *text != 0 && at + 4 <= ARGUS_NVTX_NAME_MAX; text++) {
        uint32_t c = (uint32_t)*text;
        if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
            c = 0xfffd;
        if (c < 0x80)
            buffer[at++] = (char)c;
        else if (c < 0x800) {
            buffer[at++] = (char)(0xc0 | c >> 6);
            buffer[at++] = (char)(0x80 | (c & 0x3f));
        } else if (c < 0x10000) {
            buffer[at++] = (char)(0xe0 | c >> 12);
            buffer[at++] = (char)(0x80 | (c >> 6 & 0x3f));
            buffer[at++] = (char)(0x80 | (c & 0x3f));
        } else {
            buffer[at++] = (char)(0xf0 | c >> 18);
            buffer[at++] = (char)(0x80 | (c >> 12 & 0x3f));
            buffer[at++] = (char)(0x80 | (c >> 6 & 0x3f));
            buffer[at++] = (char)(0x80 | (c & 0x3f));
        }
    }
    buffer[at] = '\0';
    return buffer;
}

/* ---- domains ---- */

uint32_t argus_nvtx_domain_index(const void *handle) {
    uintptr_t offset = (uintptr_t)handle - (uintptr_t)domains;
    return offset < sizeof domains ? (uint32_t)(offset / sizeof *domains) : 0;
}

const struct argus_nvtx_domain *argus_nvtx_domain(uint32_t index) { return &domains[index]; }

void *argus_nvtx_create_domain(const char *name) {
    size_t length = strnlen(name, ARGUS_PATTERN_MAX);
    uint32_t index = 1;
    argus_lock();
    while (index < domains_used &&
           (domains[index].length != length || memcmp(domains[index].name, name, length) != 0))
        index++;
    if (index == domains_used && index < ARGUS_NVTX_DOMAINS) {
        domains[index].length = length;
        memcpy(domains[index].name, name, length);
        domains_used++;
    }
    argus_unlock();
    return &domains[index < ARGUS_NVTX_DOMAINS ? index : 0];
}

/* ---- registered strings ---- */

const struct argus_nvtx_string *argus_nvtx_string(const void *handle) {
    uintptr_t offset = (uintptr_t)handle - (uintptr_t)strings;
    return offset < sizeof strings ? &strings[offset / sizeof *strings] : NULL;
}

void *argus_nvtx_register(const struct argus_nvtx_rules *rules, uint32_t domain, const char *text) {
    size_t length = argus_nvtx_name_length(text);
    uint64_t hash = argus_nvtx_hash(domain, text, length);
    const struct argus_nvtx_domain *in = &domains[domain];
    int rule = argus_nvtx_find(rules, in->name, in->length, text, length);
    struct argus_nvtx_string *string = &no_string;
    argus_lock();
    for (size_t probe = 0; probe < PROBES; probe++) {
        struct argus_nvtx_string *here = &strings[(hash + probe) % ARGUS_NVTX_STRINGS];
        if (here->text == NULL) {
            char *copy = malloc(length + 1);
            if (copy != NULL) {
                memcpy(copy, text, length);
                copy[length] = '\0';
                *here = (struct argus_nvtx_string){copy, length, domain, rule, hash};
                string = here;
            }
            break;
        }
        if (here->hash == hash && here->domain == domain && here->length == length &&
            memcmp(here->text, text, length) == 0) {
            string = here;
            break;
        }
    }
    argus_unlock();
    if (string->rule == ARGUS_NVTX_RULE_NONE)
        argus_nvtx_remember(hash, text, length);
    return string;
}
