/* The library as a whole: its life, its thread, what it writes. */
#ifndef ARGUS_CORE_H
#define ARGUS_CORE_H

#include <pthread.h>

#include <atomic>

#include "reader.h"
#include "recorder.h"

namespace argus {

class Core {
  public:
    int start(const char *cupti);
    void attach(const struct argus_kernels_target &target, int (*capturing)(void));
    void detach();
    void boundary(const struct argus_boundary &what);
    void profiler(bool active);
    void status(struct argus_kernels_status *status);
    void shutdown();
    void forget_in_child() { forked_.store(true, std::memory_order_relaxed); }

  private:
    static void requested(uint8_t **buffer, size_t *size, size_t *most_records);
    static void completed(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid);
    static void told(void *self, const Told &iteration, const Occurred *occurred, unsigned count);
    static void *run(void *self);

    void configure();
    CuptiResult arm();
    void disarm();
    void loop();
    void tick(uint64_t now);
    void sample_clock();
    void read(const Filled &filled);
    void advance();
    void reconcile(uint64_t now);
    void rearm(uint64_t now);
    void watch(uint64_t now);
    void count_gap(uint64_t begin, uint64_t end);
    void forget();
    uint64_t cpu_time() const;
    void turn_off(const char *reason);
    void publish();
    void write(const Told &iteration, const Occurred *occurred, unsigned count);

    Cupti cupti_ = {};
    Pool pool_;
    Boundaries boundaries_;
    Marks marks_;
    Recorder recorder_{&pool_, &boundaries_, &marks_};
    Clock clock_;
    Histograms histograms_;
    Ledger ledger_{&pool_, &boundaries_, told, this};
    Reader reader_{&cupti_, &clock_, &marks_, &histograms_, &ledger_};

    pthread_mutex_t life_ = PTHREAD_MUTEX_INITIALIZER;     /* start, shutdown, the message */
    pthread_mutex_t consumer_ = PTHREAD_MUTEX_INITIALIZER; /* ledger, histograms, target */
    pthread_t thread_ = {};
    bool running_ = false;
    char message_[256] = "";

    std::atomic<uint32_t> state_{ARGUS_KERNELS_OFF};
    std::atomic<bool> forked_{false}, stopping_{false}, wanted_{true}, profiling_{false};
    std::atomic<uint64_t> ended_{0};           /* iterations */
    std::atomic<uint64_t> aside_since_{0};     /* when the last profiler began */
    std::atomic<uint64_t> last_filled_{0};     /* when CUPTI last gave a buffer */
    std::atomic<uint64_t> events_{0}, lost_{0}; /* for status() */

    /* The consumer's. */
    struct argus_kernels_target target_ = {};
    bool attached_ = false, seen_ = false;
    uint64_t jit_told_ = 0;
    uint64_t dropped_cupti_ = 0, gaps_ = 0, gap_ = 0, refused_ = 0;
    uint64_t cpu_then_ = 0; /* of the library's thread, before this segment */

    /* The thread's. */
    bool armed_ = false;
    bool aside_ = false; /* it has seen that another profiler records */
    uint64_t quiet_ = 0; /* nanoseconds without a buffer after which to arm again */
    uint64_t ended_then_ = 0; /* iterations by the last buffer */
    uint64_t last_tick_ = 0;
};

} // namespace argus

#endif
