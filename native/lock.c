#include "lock.h"

#include <stdlib.h>

int argus_shared, argus_without_gil;
pthread_mutex_t argus_mutex = PTHREAD_MUTEX_INITIALIZER;

/* A child must not inherit the lock from a thread that it doesn't have. */
static void before_fork(void) { pthread_mutex_lock(&argus_mutex); }
static void after_fork(void) { pthread_mutex_unlock(&argus_mutex); }

/* As early as this, so that nobody is in the middle of an event. */
__attribute__((constructor)) static void decide(void) {
    const char *injection = getenv("NVTX_INJECTION64_PATH");
    argus_shared = injection != NULL && *injection != '\0' &&
                   pthread_atfork(before_fork, after_fork, after_fork) == 0;
}
