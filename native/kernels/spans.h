/* Sets of moments, as sorted disjoint intervals in memory of fixed size. */
#ifndef ARGUS_SPANS_H
#define ARGUS_SPANS_H

#include <cstddef>
#include <cstdint>

namespace argus {

struct Span {
    uint64_t begin, end;
};

class Spans {
  public:
    /* False: no memory.  Pages cost something from their first use on. */
    bool reserve(size_t capacity);

    size_t size() const { return count_; }
    const Span &operator[](size_t i) const { return span_[i]; }
    void clear() { count_ = 0; }

    /* In order of begin; joined with the last one where they touch.  What finds
     * no room is joined with the last one too, gap and all: idle time is then
     * told too small, not too large. */
    void append(uint64_t begin, uint64_t end) {
        if (end <= begin)
            return;
        if (count_ != 0 && (begin <= span_[count_ - 1].end || count_ == capacity_)) {
            if (end > span_[count_ - 1].end)
                span_[count_ - 1].end = end;
            return;
        }
        span_[count_++] = {begin, end};
    }

    /* This becomes the union, or the difference, of two others. */
    void unite(const Spans &left, const Spans &right);
    void subtract(const Spans &left, const Spans &right);

    /* Nanoseconds within [from, to). */
    uint64_t length(uint64_t from, uint64_t to) const;
    /* Nanoseconds within [from, to) that both have. */
    uint64_t overlap(const Spans &other, uint64_t from, uint64_t to) const;
    /* Leaves what is not before that moment. */
    void drop_before(uint64_t moment);

  private:
    Span *span_ = nullptr;
    size_t count_ = 0, capacity_ = 0;
};

/* Zeroed memory that costs nothing until it is touched; null: none. */
void *reserve_memory(size_t bytes);

} // namespace argus

#endif
