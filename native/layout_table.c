/* layout(): layout.h as Python objects, so that readers need no second definition. */
#include "python.h"

struct field {
    const char *name;
    size_t offset, bytes, element;
    const char *format;
};

struct table {
    const char *name;
    size_t bytes;
    const struct field *fields;
    size_t count;
};

/* numpy's name of a type, or the name of a structure. */
#define FORMAT(value) \
    _Generic((value), uint64_t: "u8", int64_t: "i8", uint32_t: "u4", int32_t: "i4", double: "f8", char *: "S", \
        uint64_t *: "u8", double *: "f8", struct argus_histogram: "histogram", struct argus_section *: "section", \
        struct argus_iteration_collective *: "iteration_collective", \
        struct argus_stack_node *: "stack_node")
#define ELEMENT(value) \
    _Generic((value), uint64_t *: 8, double *: 8, struct argus_section *: sizeof(struct argus_section), \
        struct argus_iteration_collective *: sizeof(struct argus_iteration_collective), \
        struct argus_stack_node *: sizeof(struct argus_stack_node), default: sizeof(value))
#define AT(type, member) (((struct argus_##type *)0)->member)
#define FIELD(type, member) \
    {#member, offsetof(struct argus_##type, member), sizeof AT(type, member), ELEMENT(AT(type, member)), \
     FORMAT(AT(type, member))}
#define COUNT(array) (sizeof(array) / sizeof *(array))
#define TABLE(type) {#type, sizeof(struct argus_##type), type##_fields, COUNT(type##_fields)}

static const struct field section_fields[] = {
    FIELD(section, id),
    FIELD(section, record_bytes),
    FIELD(section, records),
    FIELD(section, reserved),
    FIELD(section, offset),
};
static const struct field header_fields[] = {
    FIELD(header, magic),        FIELD(header, layout_version), FIELD(header, byte_order),
    FIELD(header, header_bytes), FIELD(header, sections),       FIELD(header, total_bytes),
    FIELD(header, incarnation),  FIELD(header, created),        FIELD(header, writer_version),
    FIELD(header, section),
};
static const struct field identity_fields[] = {
    FIELD(identity, seq),        FIELD(identity, rank),    FIELD(identity, local_rank),
    FIELD(identity, world_size), FIELD(identity, attempt), FIELD(identity, dp),
    FIELD(identity, tp),         FIELD(identity, pp),      FIELD(identity, cp),
    FIELD(identity, ep),         FIELD(identity, run_id),  FIELD(identity, role),
    FIELD(identity, node),       FIELD(identity, gpu_uuid), FIELD(identity, pci_bus_id),
};
static const struct field state_fields[] = {
    FIELD(state, run_state),      FIELD(state, iterations),  FIELD(state, last_iteration),
    FIELD(state, last_iteration_end), FIELD(state, open_phase), FIELD(state, phases_used),
    FIELD(state, collectives_used), FIELD(state, work_used), FIELD(state, sources_used),
    FIELD(state, pause_begin),    FIELD(state, pause_kind),  FIELD(state, iteration_sum),
    FIELD(state, busy_sum),
};
static const struct field histogram_fields[] = {
    FIELD(histogram, seq),
    FIELD(histogram, sum),
    FIELD(histogram, bucket),
};
static const struct field phase_fields[] = {
    FIELD(phase, name),
    FIELD(phase, kind),
    FIELD(phase, flags),
    FIELD(phase, seconds),
};
static const struct field collective_fields[] = {
    FIELD(collective, op),       FIELD(collective, group),     FIELD(collective, group_id),
    FIELD(collective, phase),    FIELD(collective, members),   FIELD(collective, nodes),
    FIELD(collective, enqueued), FIELD(collective, completed), FIELD(collective, bytes),
    FIELD(collective, seconds),
};
static const struct field iteration_collective_fields[] = {
    FIELD(iteration_collective, fastest),
    FIELD(iteration_collective, typical),
    FIELD(iteration_collective, occurrences),
    FIELD(iteration_collective, best_bandwidth),
};
static const struct field iteration_fields[] = {
    FIELD(iteration, seq),  FIELD(iteration, ordinal), FIELD(iteration, iteration), FIELD(iteration, end),
    FIELD(iteration, wall), FIELD(iteration, busy),    FIELD(iteration, phase),     FIELD(iteration, collective),
};
static const struct field work_fields[] = {
    FIELD(work, unit),
    FIELD(work, phase),
    FIELD(work, total),
};
static const struct field work_iteration_fields[] = {
    FIELD(work_iteration, seq),
    FIELD(work_iteration, ordinal),
    FIELD(work_iteration, amount),
};
static const struct field source_fields[] = {
    FIELD(source, name), FIELD(source, enabled), FIELD(source, events),
    FIELD(source, dropped), FIELD(source, cost), FIELD(source, last_event),
};
static const struct field kernel_fields[] = {
    FIELD(kernel, name),
    FIELD(kernel, window_count),
    FIELD(kernel, window_quantile),
    FIELD(kernel, seconds),
};
static const struct field device_fields[] = {
    FIELD(device, classes_used),  FIELD(device, attribution),   FIELD(device, records),
    FIELD(device, iterations),    FIELD(device, incomplete),    FIELD(device, gaps),
    FIELD(device, gap),           FIELD(device, jit),           FIELD(device, busy),          FIELD(device, marks),
    FIELD(device, memory),        FIELD(device, dropped_cupti), FIELD(device, dropped_time),
    FIELD(device, dropped_clock), FIELD(device, dropped_late),  FIELD(device, dropped_pending),
};
static const struct field device_phase_fields[] = {
    FIELD(device_phase, seconds),
    FIELD(device_phase, compute),
    FIELD(device_phase, communication),
};
static const struct field device_iteration_fields[] = {
    FIELD(device_iteration, seq),  FIELD(device_iteration, ordinal), FIELD(device_iteration, attributed),
    FIELD(device_iteration, idle), FIELD(device_iteration, busy),    FIELD(device_iteration, jit),
    FIELD(device_iteration, compute), FIELD(device_iteration, communication),
};
static const struct field flight_ring_fields[] = {
    FIELD(flight_ring, head),
    FIELD(flight_ring, names),
};
static const struct field flight_event_fields[] = {
    FIELD(flight_event, begin),
    FIELD(flight_event, duration),
    FIELD(flight_event, what),
    FIELD(flight_event, value),
};
static const struct field flight_name_fields[] = {
    FIELD(flight_name, text),
};
static const struct field stacks_fields[] = {
    FIELD(stacks, interval),
    FIELD(stacks, samples),
};
static const struct field stack_node_fields[] = {
    FIELD(stack_node, parent),   FIELD(stack_node, name),    FIELD(stack_node, line),
    FIELD(stack_node, category), FIELD(stack_node, samples),
};
static const struct field stack_generation_fields[] = {
    FIELD(stack_generation, ordinal), FIELD(stack_generation, begin), FIELD(stack_generation, end),
    FIELD(stack_generation, nodes),   FIELD(stack_generation, text),  FIELD(stack_generation, cut),
    FIELD(stack_generation, node),    FIELD(stack_generation, names),
};
static const struct table tables[] = {
    TABLE(section), TABLE(header),    TABLE(identity), TABLE(state),
    TABLE(histogram), TABLE(phase),   TABLE(collective), TABLE(iteration_collective),
    TABLE(iteration), TABLE(work),    TABLE(work_iteration), TABLE(source),
    TABLE(flight_ring), TABLE(flight_event), TABLE(flight_name),
    TABLE(kernel),    TABLE(device),  TABLE(device_phase), TABLE(device_iteration),
    TABLE(stacks),    TABLE(stack_node), TABLE(stack_generation),
};

static const struct constant {
    const char *name;
    long long value;
} constants[] = {
#define CONSTANT(name) {#name, ARGUS_##name}
    CONSTANT(LAYOUT_VERSION),
    CONSTANT(BYTE_ORDER),
    CONSTANT(MAX_SECTIONS),
    CONSTANT(MAX_PHASES),
    CONSTANT(OTHER_PHASE),
    CONSTANT(MAX_COLLECTIVES),
    CONSTANT(MAX_WORK),
    CONSTANT(MAX_SOURCES),
    CONSTANT(ITERATION_SLOTS),
    CONSTANT(HISTOGRAM_SCHEMA),
    CONSTANT(HISTOGRAM_MIN_EXPONENT),
    CONSTANT(HISTOGRAM_MAX_EXPONENT),
    CONSTANT(HISTOGRAM_BUCKETS),
    CONSTANT(SECTION_IDENTITY),
    CONSTANT(SECTION_STATE),
    CONSTANT(SECTION_ITERATION_HISTOGRAM),
    CONSTANT(SECTION_PHASES),
    CONSTANT(SECTION_COLLECTIVES),
    CONSTANT(SECTION_ITERATIONS),
    CONSTANT(SECTION_WORK),
    CONSTANT(SECTION_WORK_ITERATIONS),
    CONSTANT(PHASE_DATA_DEPENDENT),
    CONSTANT(SECTION_SOURCES),
    CONSTANT(SECTION_FLIGHT),
    CONSTANT(SECTION_FLIGHT_EVENTS),
    CONSTANT(SECTION_FLIGHT_NAMES),
    CONSTANT(SECTION_FLIGHT_KERNELS),
    CONSTANT(SECTION_FLIGHT_KERNEL_NAMES),
    CONSTANT(FLIGHT_MOST),
    CONSTANT(FLIGHT_NAMES),
    CONSTANT(FLIGHT_NO_NAME),
    CONSTANT(FLIGHT_TRACER),
    CONSTANT(FLIGHT_KERNEL),
    CONSTANT(FLIGHT_WRITERS),
    CONSTANT(FLIGHT_PHASE),
    CONSTANT(FLIGHT_COLLECTIVE),
    CONSTANT(FLIGHT_ITERATION),
    CONSTANT(FLIGHT_PAUSE),
    CONSTANT(FLIGHT_ON_DEVICE),
    CONSTANT(SECTION_KERNELS),
    CONSTANT(SECTION_DEVICE),
    CONSTANT(SECTION_DEVICE_PHASES),
    CONSTANT(SECTION_DEVICE_ITERATIONS),
    CONSTANT(SECTION_STACKS),
    CONSTANT(SECTION_STACK_GENERATIONS),
    CONSTANT(STACK_CATEGORIES),
    CONSTANT(STACK_GENERATIONS),
    CONSTANT(STACK_NODES),
    CONSTANT(STACK_TEXT),
    CONSTANT(MAX_KERNEL_CLASSES),
    CONSTANT(DEVICE_PHASES),
    CONSTANT(DEVICE_OUTSIDE),
    CONSTANT(KERNEL_QUANTILES),
    CONSTANT(ATTRIBUTION_UNDECIDED),
    CONSTANT(ATTRIBUTION_NONE),
    CONSTANT(ATTRIBUTION_MEMSET),
    CONSTANT(ATTRIBUTION_CALL),
    CONSTANT(ATTRIBUTION_API),
    CONSTANT(KIND_COMPUTE),
    CONSTANT(KIND_HOST),
    CONSTANT(KIND_COMMUNICATION),
    CONSTANT(KIND_MIXED),
    CONSTANT(STATE_RUNNING),
    CONSTANT(STATE_ENDED),
    CONSTANT(STATE_FAILED),
#undef CONSTANT
};

/* Puts value, a new reference or NULL, into dictionary. */
static int put(PyObject *dictionary, const char *key, PyObject *value) {
    int failure = value == NULL ? -1 : PyDict_SetItemString(dictionary, key, value);
    Py_XDECREF(value);
    return failure;
}

static PyObject *describe_field(const struct field *field) {
    if (field->format[0] == 'S')
        return Py_BuildValue("(nNn)", (Py_ssize_t)field->offset,
                             PyUnicode_FromFormat("S%zu", field->bytes), (Py_ssize_t)1);
    return Py_BuildValue("(nsn)", (Py_ssize_t)field->offset, field->format,
                         (Py_ssize_t)(field->bytes / field->element));
}

static PyObject *describe_table(const struct table *table) {
    PyObject *fields = PyDict_New();
    for (size_t i = 0; fields != NULL && i < table->count; i++)
        if (put(fields, table->fields[i].name, describe_field(&table->fields[i])) < 0)
            Py_CLEAR(fields);
    return fields == NULL ? NULL : Py_BuildValue("{snsN}", "size", (Py_ssize_t)table->bytes, "fields", fields);
}

PyObject *argus_layout(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused)) {
    PyObject *values = PyDict_New(), *structs = PyDict_New();
    int failure = values == NULL || structs == NULL ||
                  put(values, "MAGIC", PyBytes_FromString(ARGUS_MAGIC)) < 0;
    for (size_t i = 0; !failure && i < COUNT(constants); i++)
        failure = put(values, constants[i].name, PyLong_FromLongLong(constants[i].value)) < 0;
    for (size_t i = 0; !failure && i < COUNT(tables); i++)
        failure = put(structs, tables[i].name, describe_table(&tables[i])) < 0;
    if (failure) {
        Py_XDECREF(values);
        Py_XDECREF(structs);
        return NULL;
    }
    return Py_BuildValue("{sNsN}", "constants", values, "structs", structs);
}
