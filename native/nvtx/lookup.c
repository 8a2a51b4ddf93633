#include "lookup.h"

#include "lock.h"
#include "segment.h"

void argus_nvtx_remember(uint64_t hash, const char *text, size_t length) {
    static int full;
    if (__atomic_load_n(&full, __ATOMIC_RELAXED))
        return;
    argus_lock();
    unsigned i = 0;
    while (i < argus_nvtx.names_used && argus_nvtx.name_hash[i] != hash)
        i++;
    if (i == argus_nvtx.names_used && i < ARGUS_NVTX_NAMES) {
        argus_nvtx.name_hash[i] = hash;
        argus_copy_text(argus_nvtx.name[i], sizeof argus_nvtx.name[i], text, length);
        argus_nvtx.names_used++;
    }
    if (argus_nvtx.names_used == ARGUS_NVTX_NAMES)
        __atomic_store_n(&full, 1, __ATOMIC_RELAXED);
    argus_unlock();
}

static int known_rule(int rule) {
    return rule != ARGUS_NVTX_RULE_NONE && argus_nvtx.rules->rule[rule].type == ARGUS_NVTX_IGNORE
               ? ARGUS_NVTX_RULE_NONE
               : rule;
}

static int look_up(uint32_t domain, uint64_t hash, const char *text, size_t length) {
    const struct argus_nvtx_domain *in = argus_nvtx_domain(domain);
    int rule = argus_nvtx_find(argus_nvtx.rules, in->name, in->length, text, length);
    if (rule == ARGUS_NVTX_RULE_NONE)
        argus_nvtx_remember(hash, text, length);
    return known_rule(rule);
}

int argus_nvtx_rule_for(struct argus_nvtx_thread *thread, uint32_t domain, struct argus_nvtx_message message) {
    if (message.string != NULL)
        return known_rule(message.string->rule);
    if (message.text == NULL)
        return ARGUS_NVTX_RULE_NONE;
    size_t length = argus_nvtx_name_length(message.text);
    uint64_t hash = argus_nvtx_hash(domain, message.text, length);
    unsigned slot = hash % ARGUS_NVTX_CACHE;
    if (thread->hash[slot] != hash) {
        thread->rule[slot] = (int16_t)look_up(domain, hash, message.text, length);
        thread->hash[slot] = hash;
    }
    return thread->rule[slot];
}

int argus_nvtx_number(struct argus_nvtx_message message, uint64_t *number) {
    const char *text = message.string != NULL ? message.string->text : message.text;
    size_t length = argus_nvtx_name_length(text), digits = 0;
    while (digits < length && text[length - digits - 1] >= '0' && text[length - digits - 1] <= '9')
        digits++;
    if (digits == 0 || digits > 18)
        return 0;
    *number = 0;
    for (size_t i = length - digits; i < length; i++)
        *number = *number * 10 + (uint64_t)(text[i] - '0');
    return 1;
}
