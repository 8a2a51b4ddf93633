/* What is written into a segment. */
#include "segment.h"

#include <stdlib.h>
#include <string.h>

#include "histogram.h"
#include "sequence.h"

void argus_copy_text(char *field, size_t size, const char *text, size_t length) {
    size_t count = length < size ? length : size - 1;
    /* 10xxxxxx continues a character: do not cut inside one. */
    if (count < length)
        while (count > 0 && ((unsigned char)text[count] & 0xc0) == 0x80)
            count--;
    for (size_t i = 0; i < count; i++) {
        unsigned char byte = (unsigned char)text[i];
        field[i] = byte < 0x20 || byte == 0x7f ? '_' : (char)byte;
    }
    memset(field + count, 0, size - count);
}

static void copy(char *field, size_t size, struct argus_text text) {
    argus_copy_text(field, size, text.data, text.length);
}

void argus_segment_identify(struct argus_segment *segment, const struct argus_identity *identity) {
    if (!argus_segment_writable(segment))
        return;
    const size_t guarded = sizeof identity->seq;
    uint64_t seq = argus_sequence_begin(&segment->identity->seq);
    memcpy((char *)segment->identity + guarded, (const char *)identity + guarded, sizeof *identity - guarded);
    argus_sequence_end(&segment->identity->seq, seq);
}

unsigned argus_segment_phase(struct argus_segment *segment, struct argus_text name, uint64_t kind) {
    struct argus_phase wanted;
    copy(wanted.name, sizeof wanted.name, name);
    if (!argus_segment_writable(segment) || strcmp(wanted.name, "other") == 0)
        return ARGUS_OTHER_PHASE;
    for (unsigned i = 0; i < segment->phases_used; i++)
        if (memcmp(segment->phases[i].name, wanted.name, sizeof wanted.name) == 0)
            return i;
    if (segment->phases_used == ARGUS_OTHER_PHASE) {
        segment->dropped++;
        return ARGUS_OTHER_PHASE;
    }
    unsigned index = segment->phases_used++;
    memcpy(segment->phases[index].name, wanted.name, sizeof wanted.name);
    argus_segment_set_kind(segment, index, kind);
    argus_publish(&segment->state->phases_used, segment->phases_used);
    return index;
}

void argus_segment_set_kind(struct argus_segment *segment, unsigned index, uint64_t kind) {
    if (!argus_segment_writable(segment))
        return;
    segment->kind[index] = kind;
    argus_store(&segment->phases[index].kind, kind);
}

void argus_segment_flag_phase(struct argus_segment *segment, unsigned index, uint64_t flag) {
    if (argus_segment_writable(segment))
        argus_store(&segment->phases[index].flags, segment->phases[index].flags | flag);
}

/* Collectives of one communicator, whatever their operation, share their
 * sequence numbers. */
static unsigned find_communicator(const struct argus_segment *segment, const struct argus_collective *wanted) {
    for (unsigned i = 0; i < segment->collectives_used; i++) {
        const struct argus_collective *known = &segment->collectives[i];
        if (memcmp(known->group, wanted->group, sizeof wanted->group) == 0 &&
            memcmp(known->group_id, wanted->group_id, sizeof wanted->group_id) == 0)
            return segment->communicator[i];
    }
    return segment->collectives_used;
}

int argus_segment_collective(struct argus_segment *segment, struct argus_text op, struct argus_text group,
                             struct argus_text group_id, int64_t members, int64_t nodes) {
    struct argus_collective wanted;
    if (!argus_segment_writable(segment))
        return -1;
    copy(wanted.op, sizeof wanted.op, op);
    copy(wanted.group, sizeof wanted.group, group);
    copy(wanted.group_id, sizeof wanted.group_id, group_id);
    const size_t names = sizeof wanted.op + sizeof wanted.group + sizeof wanted.group_id;
    for (unsigned i = 0; i < segment->collectives_used; i++) {
        struct argus_collective *known = &segment->collectives[i];
        if (memcmp(known, &wanted, names) != 0)
            continue;
        if (known->members < 0) /* said later than the first time */
            argus_store((uint64_t *)&known->members, (uint64_t)members);
        if (known->nodes < 0)
            argus_store((uint64_t *)&known->nodes, (uint64_t)nodes);
        return (int)i;
    }
    if (segment->collectives_used == ARGUS_MAX_COLLECTIVES) {
        segment->dropped++;
        return -1;
    }
    unsigned phase = argus_segment_phase(segment, op, ARGUS_KIND_COMMUNICATION);
    unsigned index = segment->collectives_used;
    struct argus_collective *record = &segment->collectives[index];
    segment->communicator[index] = find_communicator(segment, &wanted);
    memcpy(record, &wanted, names);
    record->phase = phase;
    record->members = members;
    record->nodes = nodes;
    segment->collectives_used++;
    argus_publish(&segment->state->collectives_used, segment->collectives_used);
    return (int)index;
}

void argus_segment_count_phase(struct argus_segment *segment, unsigned index, uint64_t ns) {
    if (argus_segment_writable(segment))
        argus_histogram_add(&segment->phases[index].seconds, ns);
}

static uint32_t next_random(struct argus_segment *segment) {
    uint32_t x = segment->random; /* Marsaglia's xorshift */
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    return segment->random = x;
}

void argus_segment_count_collective(struct argus_segment *segment, unsigned index, uint64_t ns,
                                    uint64_t bytes) {
    if (!argus_segment_writable(segment))
        return;
    struct argus_collective *record = &segment->collectives[index];
    struct argus_running *running = &segment->running[index];
    argus_histogram_add(&record->seconds, ns);
    argus_store(&record->bytes, record->bytes + bytes);

    uint64_t n = running->occurrences++;
    if (n == 0 || ns < running->fastest)
        running->fastest = ns;
    if (bytes != 0 && ns != 0) {
        double bandwidth = (double)bytes / ((double)ns / 1e9);
        if (bandwidth > running->best_bandwidth)
            running->best_bandwidth = bandwidth;
    }
    if (n < ARGUS_SAMPLES) {
        running->sample[n] = ns;
    } else { /* reservoir sampling: each occurrence equally likely to stay */
        uint64_t slot = next_random(segment) % (n + 1);
        if (slot < ARGUS_SAMPLES)
            running->sample[slot] = ns;
    }
}

uint64_t argus_segment_renumber(struct argus_segment *segment, unsigned index, uint64_t enqueued) {
    uint64_t before = segment->enqueued[segment->communicator[index]];
    segment->enqueued[segment->communicator[index]] = enqueued;
    if (argus_segment_writable(segment))
        argus_store(&segment->collectives[index].enqueued, enqueued);
    return before;
}

uint64_t argus_segment_enqueue(struct argus_segment *segment, unsigned index) {
    uint64_t sequence = ++segment->enqueued[segment->communicator[index]];
    if (argus_segment_writable(segment))
        argus_store(&segment->collectives[index].enqueued, sequence);
    return sequence;
}

void argus_segment_complete(struct argus_segment *segment, unsigned index, uint64_t sequence) {
    uint64_t *completed = &segment->completed[segment->communicator[index]];
    if (sequence > *completed)
        *completed = sequence;
    if (argus_segment_writable(segment))
        argus_store(&segment->collectives[index].completed, *completed);
}

void argus_segment_sequence(struct argus_segment *segment, unsigned index, uint64_t enqueued,
                            uint64_t completed) {
    segment->enqueued[segment->communicator[index]] = enqueued;
    segment->completed[segment->communicator[index]] = completed;
    if (!argus_segment_writable(segment))
        return;
    argus_store(&segment->collectives[index].enqueued, enqueued);
    argus_store(&segment->collectives[index].completed, completed);
}

static int ascending(const void *left, const void *right) {
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

static uint64_t median(uint64_t *sample, size_t count) {
    qsort(sample, count, sizeof *sample, ascending);
    uint64_t low = sample[(count - 1) / 2], high = sample[count / 2];
    return low + (high - low) / 2;
}

static uint64_t compute_and_host(const struct argus_segment *segment) {
    uint64_t busy = 0;
    for (unsigned i = 0; i < ARGUS_MAX_PHASES; i++)
        if (segment->kind[i] == ARGUS_KIND_COMPUTE || segment->kind[i] == ARGUS_KIND_HOST)
            busy += segment->phase_ns[i];
    return busy;
}

static void write_work(struct argus_segment *segment) {
    uint64_t ordinal = segment->completed_iterations;
    struct argus_work_iteration *slot = &segment->work_iterations[(ordinal - 1) % ARGUS_ITERATION_SLOTS];
    uint64_t seq = argus_sequence_begin(&slot->seq);
    slot->ordinal = ordinal;
    memcpy(slot->amount, segment->work_done, sizeof slot->amount);
    argus_sequence_end(&slot->seq, seq);
}

void argus_segment_end_iteration(struct argus_segment *segment, uint64_t iteration, uint64_t end,
                                 uint64_t wall, uint64_t busy) {
    if (!argus_segment_writable(segment))
        return;
    struct argus_state *state = segment->state;
    struct argus_iteration *slot = &segment->iterations[segment->completed_iterations % ARGUS_ITERATION_SLOTS];
    if (busy == UINT64_MAX)
        busy = compute_and_host(segment);

    uint64_t seq = argus_sequence_begin(&slot->seq);
    slot->ordinal = ++segment->completed_iterations;
    slot->iteration = iteration;
    slot->end = end;
    slot->wall = wall;
    slot->busy = busy;
    memcpy(slot->phase, segment->phase_ns, sizeof slot->phase);
    for (unsigned i = 0; i < segment->collectives_used; i++) {
        struct argus_running *running = &segment->running[i];
        uint64_t sampled = running->occurrences < ARGUS_SAMPLES ? running->occurrences : ARGUS_SAMPLES;
        slot->collective[i] = (struct argus_iteration_collective){
            .fastest = running->fastest,
            .typical = sampled ? median(running->sample, sampled) : 0,
            .occurrences = running->occurrences,
            .best_bandwidth = running->best_bandwidth,
        };
    }
    argus_sequence_end(&slot->seq, seq);
    if (segment->work_used != 0)
        write_work(segment);

    argus_histogram_add(segment->iteration_seconds, wall);
    argus_store(&state->iteration_sum, state->iteration_sum + wall);
    argus_store(&state->busy_sum, state->busy_sum + busy);
    argus_store(&state->last_iteration, iteration);
    argus_store(&state->last_iteration_end, end);
    argus_publish(&state->iterations, segment->completed_iterations);
    argus_segment_reset_iteration(segment);
    argus_segment_touch(segment);
}

void argus_segment_reset_iteration(struct argus_segment *segment) {
    memset(segment->phase_ns, 0, sizeof segment->phase_ns);
    memset(segment->work_done, 0, sizeof segment->work_done);
    for (unsigned i = 0; i < segment->collectives_used; i++) {
        segment->running[i].fastest = 0;
        segment->running[i].occurrences = 0;
        segment->running[i].best_bandwidth = 0;
    }
}

void argus_segment_open_phase(struct argus_segment *segment, int index, uint64_t begin) {
    if (!argus_segment_writable(segment))
        return;
    uint64_t word = index < 0 ? UINT64_MAX : (uint64_t)index << 56 | (begin & 0xffffffffffffff);
    argus_store(&segment->state->open_phase, word);
}

void argus_segment_pause(struct argus_segment *segment, struct argus_text kind, uint64_t begin) {
    if (!argus_segment_writable(segment))
        return;
    argus_segment_resume(segment);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    copy(segment->state->pause_kind, sizeof segment->state->pause_kind, kind);
    argus_publish(&segment->state->pause_begin, begin ? begin : 1);
}

void argus_segment_resume(struct argus_segment *segment) {
    if (argus_segment_writable(segment))
        argus_publish(&segment->state->pause_begin, 0);
}

int argus_segment_work(struct argus_segment *segment, struct argus_text unit, struct argus_text phase,
                       double amount) {
    struct argus_work wanted;
    if (!argus_segment_writable(segment))
        return 0;
    copy(wanted.unit, sizeof wanted.unit, unit);
    copy(wanted.phase, sizeof wanted.phase, phase);
    const size_t names = sizeof wanted.unit + sizeof wanted.phase;
    unsigned i = 0;
    while (i < segment->work_used && memcmp(&segment->work[i], &wanted, names) != 0)
        i++;
    if (i == ARGUS_MAX_WORK)
        return -1;
    argus_store_double(&segment->work[i].total, segment->work[i].total + amount);
    segment->work_done[i] += amount;
    if (i == segment->work_used) {
        memcpy(&segment->work[i], &wanted, names);
        argus_publish(&segment->state->work_used, ++segment->work_used);
    }
    return 0;
}

struct argus_source *argus_segment_source(struct argus_segment *segment, struct argus_text name) {
    char wanted[sizeof segment->sources->name];
    copy(wanted, sizeof wanted, name);
    for (unsigned i = 0; i < segment->sources_used; i++)
        if (memcmp(segment->sources[i].name, wanted, sizeof wanted) == 0)
            return &segment->sources[i];
    if (segment->sources_used == ARGUS_MAX_SOURCES || !argus_segment_writable(segment))
        return NULL;
    struct argus_source *source = &segment->sources[segment->sources_used++];
    memcpy(source->name, wanted, sizeof wanted);
    argus_publish(&segment->state->sources_used, segment->sources_used);
    return source;
}
