/* A mutex held for a scope. */
#ifndef ARGUS_LOCK_H
#define ARGUS_LOCK_H

#include <pthread.h>

namespace argus {

class Lock {
  public:
    explicit Lock(pthread_mutex_t *mutex) : mutex_(mutex) { pthread_mutex_lock(mutex_); }
    ~Lock() { pthread_mutex_unlock(mutex_); }
    Lock(const Lock &) = delete;
    Lock &operator=(const Lock &) = delete;

  private:
    pthread_mutex_t *mutex_;
};

} // namespace argus

#endif
