/* What NVTX loads: NVTX_INJECTION64_PATH names this library, and a program's
 * first NVTX call comes to InitializeInjectionNvtx2, which takes the calls that
 * ARGUS needs.  Every copy of NVTX in a process (it is a header) does that for
 * itself. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "abi.h"
#include "events.h"
#include "lock.h"
#include "pending.h"

static struct argus_nvtx_message text_message(const char *text) {
    return (struct argus_nvtx_message){text, NULL};
}

static struct argus_nvtx_message wide_message(char *buffer, const wchar_t *text) {
    return text_message(text == NULL ? NULL : argus_nvtx_narrow(buffer, text));
}

static struct argus_nvtx_message message_of(char *buffer, const struct nvtx_attributes *attributes) {
    if (attributes == NULL || attributes->size < sizeof *attributes)
        return text_message(NULL);
    switch (attributes->message_type) {
    case NVTX_ASCII:
        return text_message(attributes->message);
    case NVTX_WIDE:
        return wide_message(buffer, attributes->message);
    case NVTX_REGISTERED:
        return (struct argus_nvtx_message){NULL, argus_nvtx_string(attributes->message)};
    default:
        return text_message(NULL);
    }
}

#define BUFFER char buffer[ARGUS_NVTX_NAME_MAX + 1]

/* ---- the default domain ---- */

static void mark_ex(const struct nvtx_attributes *attributes) {
    BUFFER;
    argus_nvtx_mark(0, message_of(buffer, attributes));
}
static void mark_a(const char *text) { argus_nvtx_mark(0, text_message(text)); }
static void mark_w(const wchar_t *text) {
    BUFFER;
    argus_nvtx_mark(0, wide_message(buffer, text));
}
static uint64_t start_ex(const struct nvtx_attributes *attributes) {
    BUFFER;
    return argus_nvtx_range_start(0, message_of(buffer, attributes));
}
static uint64_t start_a(const char *text) { return argus_nvtx_range_start(0, text_message(text)); }
static uint64_t start_w(const wchar_t *text) {
    BUFFER;
    return argus_nvtx_range_start(0, wide_message(buffer, text));
}
static void end(uint64_t id) { argus_nvtx_range_end(id); }
static int push_ex(const struct nvtx_attributes *attributes) {
    BUFFER;
    argus_nvtx_range_push(0, message_of(buffer, attributes));
    return NVTX_NOT_TRACKED;
}
static int push_a(const char *text) {
    argus_nvtx_range_push(0, text_message(text));
    return NVTX_NOT_TRACKED;
}
static int push_w(const wchar_t *text) {
    BUFFER;
    argus_nvtx_range_push(0, wide_message(buffer, text));
    return NVTX_NOT_TRACKED;
}
static int pop(void) {
    argus_nvtx_range_pop(0);
    return NVTX_NOT_TRACKED;
}

/* ---- other domains ---- */

static void domain_mark_ex(void *domain, const struct nvtx_attributes *attributes) {
    BUFFER;
    argus_nvtx_mark(argus_nvtx_domain_index(domain), message_of(buffer, attributes));
}
static uint64_t domain_start_ex(void *domain, const struct nvtx_attributes *attributes) {
    BUFFER;
    return argus_nvtx_range_start(argus_nvtx_domain_index(domain), message_of(buffer, attributes));
}
static void domain_end(void *domain, uint64_t id) {
    (void)domain;
    argus_nvtx_range_end(id);
}
static int domain_push_ex(void *domain, const struct nvtx_attributes *attributes) {
    BUFFER;
    argus_nvtx_range_push(argus_nvtx_domain_index(domain), message_of(buffer, attributes));
    return NVTX_NOT_TRACKED;
}
static int domain_pop(void *domain) {
    argus_nvtx_range_pop(argus_nvtx_domain_index(domain));
    return NVTX_NOT_TRACKED;
}
static void *register_a(void *domain, const char *text) {
    return text == NULL ? NULL : argus_nvtx_register(argus_nvtx.rules, argus_nvtx_domain_index(domain), text);
}
static void *register_w(void *domain, const wchar_t *text) {
    BUFFER;
    return text == NULL ? NULL : register_a(domain, argus_nvtx_narrow(buffer, text));
}
static void *create_a(const char *name) { return argus_nvtx_create_domain(name == NULL ? "" : name); }
static void *create_w(const wchar_t *name) {
    BUFFER;
    return create_a(name == NULL ? "" : argus_nvtx_narrow(buffer, name));
}

/* ---- taking the calls ---- */

struct callback {
    unsigned index;
    nvtx_function function;
};

#define CALLBACK(index, function) {index, (nvtx_function)function}

static const struct callback core[] = {
    CALLBACK(NVTX_MARK_EX, mark_ex),        CALLBACK(NVTX_MARK_A, mark_a),
    CALLBACK(NVTX_MARK_W, mark_w),          CALLBACK(NVTX_RANGE_START_EX, start_ex),
    CALLBACK(NVTX_RANGE_START_A, start_a),  CALLBACK(NVTX_RANGE_START_W, start_w),
    CALLBACK(NVTX_RANGE_END, end),          CALLBACK(NVTX_RANGE_PUSH_EX, push_ex),
    CALLBACK(NVTX_RANGE_PUSH_A, push_a),    CALLBACK(NVTX_RANGE_PUSH_W, push_w),
    CALLBACK(NVTX_RANGE_POP, pop),
};
static const struct callback core2[] = {
    CALLBACK(NVTX_DOMAIN_MARK_EX, domain_mark_ex),
    CALLBACK(NVTX_DOMAIN_RANGE_START_EX, domain_start_ex),
    CALLBACK(NVTX_DOMAIN_RANGE_END, domain_end),
    CALLBACK(NVTX_DOMAIN_RANGE_PUSH_EX, domain_push_ex),
    CALLBACK(NVTX_DOMAIN_RANGE_POP, domain_pop),
    CALLBACK(NVTX_DOMAIN_REGISTER_STRING_A, register_a),
    CALLBACK(NVTX_DOMAIN_REGISTER_STRING_W, register_w),
    CALLBACK(NVTX_DOMAIN_CREATE_A, create_a),
    CALLBACK(NVTX_DOMAIN_CREATE_W, create_w),
};

#define COUNT(array) (sizeof(array) / sizeof *(array))

static int take(const struct nvtx_callbacks *from, int module, const struct callback *callbacks, size_t count) {
    nvtx_function **table = NULL;
    unsigned size = 0;
    if (!from->module(module, &table, &size) || table == NULL)
        return 0;
    for (size_t i = 0; i < count; i++)
        if (callbacks[i].index < size && table[callbacks[i].index] != NULL)
            *table[callbacks[i].index] = callbacks[i].function;
    return 1;
}

static int is_set(const char *variable) {
    const char *value = getenv(variable);
    return value != NULL && *value != '\0' && strcmp(value, "0") != 0 && strcasecmp(value, "false") != 0 &&
           strcasecmp(value, "no") != 0;
}

static void read_rules(void) {
    const char *path = getenv("ARGUS_NVTX_PATTERNS");
    argus_nvtx.rules = argus_nvtx_rules_read(path != NULL && *path != '\0' ? path : NULL, argus_nvtx.message,
                                             sizeof argus_nvtx.message);
}

/* Returns 1, or 0 where NVTX shall do without ARGUS: it then calls nobody. */
__attribute__((visibility("default"))) int InitializeInjectionNvtx2(nvtx_export export) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (is_set("ARGUS_DISABLE"))
        return 0;
    if (!argus_shared) { /* the accounting has begun without a lock */
        fprintf(stderr, "argus: NVTX ranges are not traced: NVTX_INJECTION64_PATH was set after argus was "
                        "imported; set it before the program starts\n");
        return 0;
    }
    const struct nvtx_callbacks *callbacks = export == NULL ? NULL : export(NVTX_CALLBACKS);
    if (callbacks == NULL || callbacks->size < sizeof *callbacks || callbacks->module == NULL)
        return 0;
    pthread_once(&once, read_rules);
    if (argus_nvtx.rules == NULL || !take(callbacks, NVTX_CORE, core, COUNT(core)))
        return 0;
    take(callbacks, NVTX_CORE2, core2, COUNT(core2)); /* not there in the first version */
    if (is_set("ARGUS_NVTX_INIT"))
        argus_nvtx_want_initialisation();
    argus_nvtx_ask();
    return 1;
}
