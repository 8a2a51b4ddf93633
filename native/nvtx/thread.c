#include "thread.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local struct argus_nvtx_thread *current;
static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int failure;

static void end(void *thread) {
    current = NULL;
    argus_nvtx_thread_ends(thread);
    free(thread);
}

static void make_key(void) { failure = pthread_key_create(&key, end); }

static struct argus_nvtx_thread *make(void) {
    pthread_once(&once, make_key);
    struct argus_nvtx_thread *thread = failure ? NULL : calloc(1, sizeof *thread);
    if (thread != NULL && pthread_setspecific(key, thread) != 0) {
        free(thread);
        thread = NULL;
    }
    return current = thread;
}

struct argus_nvtx_thread *argus_nvtx_thread(void) { return current != NULL ? current : make(); }

struct argus_nvtx_open *argus_nvtx_push(struct argus_nvtx_thread *thread, uint32_t domain, int rule) {
    struct argus_nvtx_level *top = thread->depth ? &thread->level[thread->depth - 1] : NULL;
    if (thread->overflow == 0 && rule == ARGUS_NVTX_RULE_NONE && top != NULL &&
        top->open.rule == ARGUS_NVTX_RULE_NONE && top->domain == domain) {
        top->run++;
        return NULL;
    }
    if (thread->overflow != 0 || thread->depth == ARGUS_NVTX_DEPTH) {
        thread->overflow++;
        return NULL;
    }
    top = &thread->level[thread->depth++];
    *top = (struct argus_nvtx_level){{rule, 0, 0}, domain, 1};
    return &top->open;
}

int argus_nvtx_pop(struct argus_nvtx_thread *thread, uint32_t domain, struct argus_nvtx_open *open) {
    open->rule = ARGUS_NVTX_RULE_NONE;
    if (thread->overflow != 0) {
        thread->overflow--;
        return 0;
    }
    for (unsigned i = thread->depth; i-- > 0;) {
        struct argus_nvtx_level *level = &thread->level[i];
        if (level->domain != domain)
            continue;
        if (--level->run == 0) {
            *open = level->open;
            thread->depth--;
            memmove(level, level + 1, (thread->depth - i) * sizeof *level);
        }
        return 0;
    }
    return -1;
}
