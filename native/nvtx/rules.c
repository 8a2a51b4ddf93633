#define _GNU_SOURCE
#include "rules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "python.h"

static int is(const char *word, size_t length, const char *text) {
    return strlen(text) == length && memcmp(word, text, length) == 0;
}

/* phase, phase:kind, either with a final +; pause:kind; iteration; ignore. */
static const char *read_target(struct argus_nvtx_rule *rule, const char *word, size_t length) {
    rule->type = is(word, length, "ignore")      ? ARGUS_NVTX_IGNORE
                 : is(word, length, "iteration") ? ARGUS_NVTX_ITERATION
                                                 : ARGUS_NVTX_PHASE;
    if (rule->type != ARGUS_NVTX_PHASE)
        return NULL;
    if (length > 0 && word[length - 1] == '+') {
        rule->last = 1;
        length--;
    }
    const char *colon = memchr(word, ':', length);
    struct argus_text name = {word, colon ? (size_t)(colon - word) : length};
    struct argus_text kind = {colon ? colon + 1 : "", colon ? length - name.length - 1 : 0};
    if (is(name.data, name.length, "pause")) {
        rule->type = ARGUS_NVTX_PAUSE;
        name = kind;
    } else if (colon == NULL)
        rule->kind = argus_infer_kind(name);
    else if (argus_kind_from_text(kind, &rule->kind) < 0)
        return "a phase's kind is compute, host, communication or mixed";
    if (name.length == 0)
        return "write phase, phase:kind, pause:kind, iteration or ignore";
    if (name.length >= sizeof rule->name)
        return "a name of more than 63 bytes";
    rule->length = name.length;
    memcpy(rule->name, name.data, name.length);
    return NULL;
}

/* `@domain pattern`, or the pattern alone. */
static const char *read_pattern(struct argus_nvtx_rule *rule, const struct argus_pattern *pattern) {
    const char *text = pattern->text, *end = text + pattern->length;
    rule->any_domain = *text != '@';
    if (!rule->any_domain) {
        const char *domain = ++text;
        while (text < end && *text != ' ' && *text != '\t')
            text++;
        rule->domain.length = (size_t)(text - domain);
        memcpy(rule->domain.text, domain, rule->domain.length);
        while (text < end && (*text == ' ' || *text == '\t'))
            text++;
        if (text == end)
            return "a domain without a pattern; write * for all of its ranges";
    }
    rule->pattern.length = (size_t)(end - text);
    memcpy(rule->pattern.text, text, rule->pattern.length);
    if (rule->pattern.length > 1 && *text == '^' && strchr("*?$", text[1]) == NULL)
        rule->first = text[1];
    return NULL;
}

static const char *take(void *target, size_t number, const char *word, size_t length,
                        const struct argus_pattern *pattern) {
    struct argus_nvtx_rule *rule = &((struct argus_nvtx_rules *)target)->rule[number];
    memset(rule, 0, sizeof *rule);
    const char *wrong = read_target(rule, word, length);
    return wrong ? wrong : read_pattern(rule, pattern);
}

static void add_default(struct argus_nvtx_rules *rules, const char *target, const char *text) {
    struct argus_pattern pattern = {.length = strlen(text)};
    memcpy(pattern.text, text, pattern.length);
    if (rules->used < ARGUS_NVTX_RULES_MAX && take(rules, rules->used, target, strlen(target), &pattern) == NULL)
        rules->rule[rules->used++].assumed = 1;
}

struct argus_nvtx_rules *argus_nvtx_rules_read(const char *path, char *complaint, size_t size) {
    struct argus_nvtx_rules *rules = malloc(sizeof *rules);
    if (size)
        *complaint = '\0';
    if (rules == NULL) {
        snprintf(complaint, size, "no memory for the rules of NVTX ranges");
        return NULL;
    }
    rules->used = path == NULL ? 0 : argus_read_patterns(path, "target", take, rules, complaint, size);
    for (const char *const *text = argus_nvtx_defaults; *text != NULL; text += 2)
        add_default(rules, text[0], text[1]);
    return rules;
}

size_t argus_nvtx_name_length(const char *name) {
    static const char *const tails[] = {"seq = ", "op_id = ", "sizes = "};
    size_t length = strnlen(name, ARGUS_NVTX_NAME_MAX);
    const char *comma = name;
    while ((comma = memchr(comma, ',', length - (size_t)(comma - name))) != NULL) {
        const char *tail = comma + 1;
        size_t left = length - (size_t)(tail - name);
        for (size_t i = 0; i < sizeof tails / sizeof *tails; i++)
            if (left > strlen(tails[i]) && *tail == ' ' && memcmp(tail + 1, tails[i], strlen(tails[i])) == 0)
                return (size_t)(comma - name);
        comma = tail;
    }
    return length;
}

/* The whole of a domain's name. */
static int fits_domain(const struct argus_nvtx_rule *rule, const char *domain, size_t length) {
    char whole[ARGUS_PATTERN_MAX + 2];
    if (rule->any_domain)
        return 1;
    whole[0] = '^';
    memcpy(whole + 1, rule->domain.text, rule->domain.length);
    whole[rule->domain.length + 1] = '$';
    return argus_match(domain, length, whole, rule->domain.length + 2);
}

static size_t lower(char *target, const char *text, size_t length) {
    if (length > ARGUS_NVTX_NAME_MAX)
        length = ARGUS_NVTX_NAME_MAX;
    for (size_t i = 0; i < length; i++)
        target[i] = argus_lower(text[i]);
    return length;
}

int argus_nvtx_find(const struct argus_nvtx_rules *rules, const char *domain, size_t domain_length,
                    const char *name, size_t length) {
    char lower_name[ARGUS_NVTX_NAME_MAX], lower_domain[ARGUS_NVTX_NAME_MAX];
    length = lower(lower_name, name, length);
    domain_length = lower(lower_domain, domain, domain_length);
    for (size_t i = 0; i < rules->used; i++) {
        const struct argus_nvtx_rule *rule = &rules->rule[i];
        if (rule->first != 0 && (length == 0 || rule->first != lower_name[0]))
            continue;
        if (fits_domain(rule, lower_domain, domain_length) &&
            argus_match(lower_name, length, rule->pattern.text, rule->pattern.length))
            return (int)i;
    }
    return ARGUS_NVTX_RULE_NONE;
}
