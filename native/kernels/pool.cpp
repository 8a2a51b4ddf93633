#include "pool.h"

#include <sys/mman.h>
#include <time.h>

#include <cstring>

#include "lock.h"

namespace argus {

bool Pool::reserve() {
    if (memory_ != nullptr)
        return true;
    void *memory = mmap(nullptr, kBufferBytes * kBuffers, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&condition_, &monotonic);
    pthread_condattr_destroy(&monotonic);
    memory_ = static_cast<uint8_t *>(memory);
    return true;
}

unsigned Pool::index_of(const uint8_t *buffer) const {
    uintptr_t distance = reinterpret_cast<uintptr_t>(buffer) - reinterpret_cast<uintptr_t>(memory_);
    return distance % kBufferBytes == 0 && distance / kBufferBytes < fresh_
               ? static_cast<unsigned>(distance / kBufferBytes)
               : kBuffers;
}

uint8_t *Pool::request(uint64_t now) {
    Lock lock(&mutex_);
    if (in_use_ == kAtOnce || (free_count_ == 0 && fresh_ == kBuffers)) {
        refused_.fetch_add(1, std::memory_order_relaxed);
        return nullptr;
    }
    unsigned index;
    if (free_count_ != 0) {
        index = free_[--free_count_];
    } else {
        index = fresh_++;
        used_.store(fresh_, std::memory_order_relaxed);
    }
    in_use_++;
    uint64_t number = requests_.load(std::memory_order_relaxed) + 1;
    slot_[index] = {kOut, number, now, 0};
    requests_.store(number, std::memory_order_release);
    return memory_ + index * kBufferBytes;
}

bool Pool::complete(uint8_t *buffer, size_t valid) {
    Lock lock(&mutex_);
    unsigned index = index_of(buffer);
    if (index == kBuffers || (slot_[index].state != kOut && slot_[index].state != kAbandoned))
        return false;
    if (slot_[index].state == kAbandoned)
        in_use_++; /* it came back after all */
    slot_[index].state = kFilled;
    slot_[index].valid = valid < kBufferBytes ? valid : kBufferBytes;
    filled_++;
    pthread_cond_signal(&condition_);
    return true;
}

bool Pool::take(Filled *filled, uint64_t nanoseconds) {
    struct timespec deadline;
    clock_gettime(CLOCK_MONOTONIC, &deadline);
    uint64_t at = static_cast<uint64_t>(deadline.tv_nsec) + nanoseconds;
    deadline.tv_sec += static_cast<time_t>(at / 1000000000u);
    deadline.tv_nsec = static_cast<long>(at % 1000000000u);

    Lock lock(&mutex_);
    while (filled_ == 0 && !woken_)
        if (pthread_cond_timedwait(&condition_, &mutex_, &deadline) != 0)
            break;
    woken_ = false;
    if (filled_ == 0)
        return false;
    unsigned index = oldest();
    slot_[index].state = kReading;
    filled_--;
    *filled = {memory_ + index * kBufferBytes, slot_[index].valid, slot_[index].requested};
    return true;
}

unsigned Pool::oldest() const {
    unsigned found = kBuffers;
    for (unsigned i = 0; i < fresh_; i++)
        if (slot_[i].state == kFilled && (found == kBuffers || slot_[i].number < slot_[found].number))
            found = i;
    return found;
}

void Pool::give_back(const Filled &filled) {
    std::memset(filled.data, 0, filled.valid);
    Lock lock(&mutex_);
    unsigned index = index_of(filled.data);
    slot_[index].state = kFree;
    free_[free_count_++] = index;
    in_use_--;
}

bool Pool::all_back(uint64_t requests) {
    Lock lock(&mutex_);
    for (unsigned i = 0; i < fresh_; i++)
        if (slot_[i].state >= kOut && slot_[i].state <= kReading && slot_[i].number <= requests)
            return false;
    return true;
}

void Pool::abandon() {
    Lock lock(&mutex_);
    for (unsigned i = 0; i < fresh_; i++)
        if (slot_[i].state == kOut) {
            slot_[i].state = kAbandoned;
            in_use_--;
        }
}

void Pool::wake() {
    Lock lock(&mutex_);
    woken_ = true;
    pthread_cond_signal(&condition_);
}

} // namespace argus
