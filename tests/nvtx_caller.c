/* A program that uses NVTX, by its real header: for tests, called through ctypes, which gives the GIL back
 * meanwhile, and from threads that Python doesn't know. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <nvtx3/nvToolsExt.h>

static nvtxEventAttributes_t attributes(void) {
    nvtxEventAttributes_t result;
    memset(&result, 0, sizeof result);
    result.version = NVTX_VERSION;
    result.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    return result;
}

static nvtxEventAttributes_t ascii(const char *text) {
    nvtxEventAttributes_t result = attributes();
    result.messageType = NVTX_MESSAGE_TYPE_ASCII;
    result.message.ascii = text;
    return result;
}

int push(const char *text) { return nvtxRangePushA(text); }
int push_wide(const wchar_t *text) { return nvtxRangePushW(text); }
int pop(void) { return nvtxRangePop(); }
uint64_t start(const char *text) { return nvtxRangeStartA(text); }
uint64_t start_wide(const wchar_t *text) { return nvtxRangeStartW(text); }
void end(uint64_t id) { nvtxRangeEnd(id); }
void mark(const char *text) { nvtxMarkA(text); }

void *domain(const char *name) { return nvtxDomainCreateA(name); }
void *domain_wide(const wchar_t *name) { return nvtxDomainCreateW(name); }
void *string(void *domain, const char *text) { return nvtxDomainRegisterStringA(domain, text); }
void *string_wide(void *domain, const wchar_t *text) { return nvtxDomainRegisterStringW(domain, text); }
int domain_pop(void *domain) { return nvtxDomainRangePop(domain); }
void domain_end(void *domain, uint64_t id) { nvtxDomainRangeEnd(domain, id); }

int domain_push(void *domain, const char *text) {
    nvtxEventAttributes_t event = ascii(text);
    return nvtxDomainRangePushEx(domain, &event);
}

uint64_t domain_start(void *domain, const char *text) {
    nvtxEventAttributes_t event = ascii(text);
    return nvtxDomainRangeStartEx(domain, &event);
}

void domain_mark(void *domain, const char *text) {
    nvtxEventAttributes_t event = ascii(text);
    nvtxDomainMarkEx(domain, &event);
}

int push_registered(void *domain, void *handle) {
    nvtxEventAttributes_t event = attributes();
    event.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    event.message.registered = handle;
    return nvtxDomainRangePushEx(domain, &event);
}

/* Calls that a tool can make nothing of. */
void push_nonsense(void) {
    nvtxEventAttributes_t event = ascii("forward");
    nvtxRangePushEx(NULL);
    event.size = 4;
    nvtxRangePushEx(&event);
    event = ascii(NULL);
    nvtxRangePushEx(&event);
    event.messageType = 77;
    nvtxRangePushEx(&event);
    event.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    event.message.registered = (nvtxStringHandle_t)&event;
    nvtxDomainRangePushEx((nvtxDomainHandle_t)&event, &event);
    nvtxRangePushA(NULL);
    nvtxRangePushW(NULL);
    nvtxMarkEx(NULL);
    nvtxRangeEnd(0);
    nvtxRangeEnd(UINT64_MAX);
    nvtxRangeEnd(12345);
    nvtxDomainDestroy(NULL);
}

struct work {
    const char *outer, *inner;
    int rounds;
};

static void *run(void *argument) {
    const struct work *work = argument;
    for (int i = 0; i < work->rounds; i++) {
        nvtxRangePushA(work->outer);
        nvtxRangePushA(work->inner);
        nvtxRangePop();
        nvtxRangePop();
    }
    return NULL;
}

/* Pairs of ranges in threads of their own. */
void threads(int count, int rounds, const char *outer, const char *inner) {
    pthread_t thread[64];
    struct work work = {outer, inner, rounds};
    for (int i = 0; i < count; i++)
        pthread_create(&thread[i], NULL, run, &work);
    for (int i = 0; i < count; i++)
        pthread_join(thread[i], NULL);
}

static void *leave(void *text) {
    nvtxRangePushA("nobody's");
    nvtxRangePushA(text);
    return NULL;
}

/* A thread that ends within a range. */
void leave_open(const char *text) {
    pthread_t thread;
    pthread_create(&thread, NULL, leave, (void *)text);
    pthread_join(thread, NULL);
}

/* Status of a forked child that goes on with its ranges. */
int child(const char *text, int rounds) {
    int status = -1;
    pid_t pid = fork();
    if (pid == 0) {
        nvtxRangePop(); /* begun by the parent */
        for (int i = 0; i < rounds; i++) {
            nvtxRangePushA(text);
            nvtxRangePop();
        }
        threads(2, rounds, text, "other");
        _exit(0);
    }
    waitpid(pid, &status, 0);
    return status;
}

/* Nanoseconds for one range, best of a number of rounds. */
double pair_ns(const char *text, int rounds, int count) {
    double best = 1e18;
    for (int round = 0; round < rounds; round++) {
        struct timespec begin, now;
        clock_gettime(CLOCK_MONOTONIC, &begin);
        for (int i = 0; i < count; i++) {
            nvtxRangePushA(text);
            nvtxRangePop();
        }
        clock_gettime(CLOCK_MONOTONIC, &now);
        double ns = ((double)(now.tv_sec - begin.tv_sec) * 1e9 + (double)(now.tv_nsec - begin.tv_nsec)) / count;
        best = ns < best ? ns : best;
    }
    return best;
}

/* The same with a name of its own each time, as torch's emit_nvtx has them. */
double unique_ns(int rounds, int count) {
    double best = 1e18;
    char text[] = "aten::operator_0000000";
    for (int round = 0; round < rounds; round++) {
        struct timespec begin, now;
        clock_gettime(CLOCK_MONOTONIC, &begin);
        for (int i = 0; i < count; i++) {
            int number = round * count + i;
            for (size_t at = sizeof text - 2; text[at] != '_'; at--, number /= 10)
                text[at] = (char)('0' + number % 10);
            nvtxRangePushA(text);
            nvtxRangePop();
        }
        clock_gettime(CLOCK_MONOTONIC, &now);
        double ns = ((double)(now.tv_sec - begin.tv_sec) * 1e9 + (double)(now.tv_nsec - begin.tv_nsec)) / count;
        best = ns < best ? ns : best;
    }
    return best;
}

#ifdef PROGRAM
int main(void) {
    for (int i = 0; i < 2000; i++) {
        nvtxRangePushA("forward");
        nvtxRangePop();
    }
    return 0;
}
#endif
