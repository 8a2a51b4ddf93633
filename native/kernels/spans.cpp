#include "spans.h"

#include <sys/mman.h>

namespace argus {
namespace {

uint64_t later(uint64_t a, uint64_t b) { return a > b ? a : b; }
uint64_t earlier(uint64_t a, uint64_t b) { return a < b ? a : b; }

} // namespace

void *reserve_memory(size_t bytes) {
    void *memory =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? nullptr : memory;
}

bool Spans::reserve(size_t capacity) {
    if (span_ == nullptr)
        span_ = static_cast<Span *>(reserve_memory(capacity * sizeof(Span)));
    capacity_ = capacity;
    return span_ != nullptr;
}

void Spans::unite(const Spans &left, const Spans &right) {
    size_t i = 0, j = 0;
    clear();
    while (i < left.count_ || j < right.count_) {
        bool first = j == right.count_ || (i < left.count_ && left.span_[i].begin <= right.span_[j].begin);
        const Span &next = first ? left.span_[i++] : right.span_[j++];
        append(next.begin, next.end);
    }
}

void Spans::subtract(const Spans &left, const Spans &right) {
    size_t j = 0;
    clear();
    for (size_t i = 0; i < left.count_; i++) {
        uint64_t begin = left.span_[i].begin, end = left.span_[i].end;
        while (j < right.count_ && right.span_[j].end <= begin)
            j++;
        for (size_t k = j; k < right.count_ && right.span_[k].begin < end; k++) {
            append(begin, right.span_[k].begin);
            begin = later(begin, right.span_[k].end);
        }
        append(begin, end);
    }
}

uint64_t Spans::length(uint64_t from, uint64_t to) const {
    uint64_t sum = 0;
    for (size_t i = 0; i < count_; i++) {
        uint64_t begin = later(span_[i].begin, from), end = earlier(span_[i].end, to);
        if (begin < end)
            sum += end - begin;
    }
    return sum;
}

uint64_t Spans::overlap(const Spans &other, uint64_t from, uint64_t to) const {
    uint64_t sum = 0;
    size_t i = 0, j = 0;
    while (i < count_ && j < other.count_) {
        const Span &a = span_[i], &b = other.span_[j];
        uint64_t begin = later(later(a.begin, b.begin), from), end = earlier(earlier(a.end, b.end), to);
        if (begin < end)
            sum += end - begin;
        if (a.end < b.end)
            i++;
        else
            j++;
    }
    return sum;
}

void Spans::drop_before(uint64_t moment) {
    size_t kept = 0;
    for (size_t i = 0; i < count_; i++)
        if (span_[i].end > moment)
            span_[kept++] = {later(span_[i].begin, moment), span_[i].end};
    count_ = kept;
}

} // namespace argus
