#define _GNU_SOURCE
#include "guard.h"

#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SLOTS 4096

/* Slots stay where they are: the handler may look while another thread adds. */
static struct slot {
    volatile uintptr_t base; /* 0: free */
    size_t bytes;
    int fd;
    volatile int *lost;
} slots[SLOTS];
static volatile unsigned slots_seen;
static unsigned guarded;
static struct sigaction previous;

static void pass_on(int number, siginfo_t *info, void *context) {
    if (previous.sa_flags & SA_SIGINFO) {
        previous.sa_sigaction(number, info, context);
    } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
        previous.sa_handler(number);
    } else {
        /* The faulting instruction runs again and meets the default action. */
        sigaction(number, &previous, NULL);
        if (info->si_code <= 0) /* sent by a process, nothing runs again */
            raise(number);
    }
}

static int replace(struct slot *slot) {
    void *memory = mmap((void *)slot->base, slot->bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (memory == MAP_FAILED)
        return 0;
    *slot->lost = 1;
    return 1;
}

static int is_short(const struct slot *slot) {
    struct stat status;
    return fstat(slot->fd, &status) == 0 && (size_t)status.st_size < slot->bytes;
}

static void on_bus_error(int number, siginfo_t *info, void *context) {
    uintptr_t address = (uintptr_t)info->si_addr;
    int replaced = 0;
    for (unsigned i = 0; i < slots_seen; i++) {
        struct slot *slot = &slots[i];
        if (slot->base == 0)
            continue;
        /* A handler that was set after this one, Python's faulthandler for one,
         * raises the signal anew, and the address is gone. */
        if (info->si_code == BUS_ADRERR ? address >= slot->base && address - slot->base < slot->bytes
                                        : info->si_pid == getpid() && !*slot->lost && is_short(slot))
            replaced |= replace(slot);
    }
    if (!replaced)
        pass_on(number, info, context);
}

void argus_guard_add(void *base, size_t bytes, int fd, volatile int *lost) {
    unsigned i = 0;
    while (i < SLOTS && slots[i].base != 0)
        i++;
    if (i == SLOTS)
        return;
    if (guarded++ == 0) {
        struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | SA_ONSTACK};
        sigemptyset(&action.sa_mask);
        sigaction(SIGBUS, &action, &previous);
    }
    slots[i].bytes = bytes;
    slots[i].fd = fd;
    slots[i].lost = lost;
    __atomic_store_n(&slots[i].base, (uintptr_t)base, __ATOMIC_RELEASE);
    if (i >= slots_seen)
        slots_seen = i + 1;
}

void argus_guard_remove(void *base) {
    for (unsigned i = 0; i < slots_seen; i++) {
        if (slots[i].base != (uintptr_t)base)
            continue;
        slots[i].base = 0;
        if (--guarded == 0) {
            struct sigaction current;
            sigaction(SIGBUS, NULL, &current);
            if ((current.sa_flags & SA_SIGINFO) && current.sa_sigaction == on_bus_error)
                sigaction(SIGBUS, &previous, NULL);
        }
        return;
    }
}
