"""Every metric that ARGUS exposes, in one place.

The exporter builds its families from these entries; rules, dashboards,
runbooks, documentation and tests are checked against them.
"""

from __future__ import annotations

from dataclasses import dataclass

RANK_LABELS = ("run_id", "role", "rank")
"""Labels of every series that describes one rank, before its own labels."""


@dataclass(frozen=True)
class Metric:
    """One metric family.

    Attributes:
        name: Name as in PromQL, without the suffixes that its type adds
            (counters carry their ``_total``).
        type: ``gauge``, ``counter``, ``histogram``, ``summary`` or ``info``.
        help: One sentence with a full stop.
        labels: Label names in exposition order, ``quantile`` and ``le`` not among them.
        quantiles: For a summary, its quantiles as spelled in the exposition.
    """

    name: str
    type: str
    help: str
    labels: tuple[str, ...] = RANK_LABELS
    quantiles: tuple[str, ...] = ()


def _rank(name: str, type: str, help: str, *labels: str, quantiles: tuple[str, ...] = ()) -> Metric:
    return Metric(name, type, help, RANK_LABELS + labels, quantiles)


def _gpu(name: str, type: str, help: str, *labels: str) -> Metric:
    """A metric of one GPU; the rank's labels are empty where no rank of this node uses it."""
    return _rank(name, type, help, "gpu_uuid", *labels)


_SPREAD = ("0.0", "0.5", "1.0")
_COLLECTIVE = ("op", "group", "group_id")

RANK_INFO = _rank(
    "argus_rank_info", "gauge",
    "Identity of a rank, the value is always 1.",
    "node", "local_rank", "gpu_uuid", "pci_bus_id", "dp", "tp", "pp", "cp", "ep",
)  # fmt: skip
RANK_UP = _rank("argus_rank_up", "gauge", "Whether the rank's process is alive.")
WORLD_SIZE = _rank("argus_world_size", "gauge", "Number of ranks in the run.")
ATTEMPT = _rank("argus_attempt", "gauge", "How often the run has been restarted.")

ITERATION = _rank("argus_iteration", "gauge", "Number of the last completed iteration.")
ITERATION_AGE = _rank(
    "argus_iteration_age_seconds", "gauge",
    "Seconds since the last completed iteration ended, measured on the node.",
)  # fmt: skip
ITERATION_SECONDS = _rank("argus_iteration_seconds", "histogram", "Wall time of an iteration.")

PHASE_SECONDS = _rank(
    "argus_phase_seconds", "histogram",
    "Exclusive time of one occurrence of a phase.", "phase", "kind",
)  # fmt: skip
PHASE_DATA_DEPENDENT = _rank(
    "argus_phase_data_dependent", "gauge",
    "Marks a phase whose time depends on the rank's data, the value is always 1.", "phase", "kind",
)  # fmt: skip
PHASE_OPEN = _rank(
    "argus_phase_open_seconds", "gauge",
    "Age of the innermost open phase, or of the declared pause (kind pause), once older than 10 s.",
    "phase", "kind",
)  # fmt: skip

COLLECTIVE_SECONDS = _rank(
    "argus_collective_seconds", "histogram",
    "Time of one collective as this rank saw it, waiting included.", *_COLLECTIVE,
)  # fmt: skip
COLLECTIVE_BYTES = _rank(
    "argus_collective_bytes_total", "counter", "Payload of the collectives.", *_COLLECTIVE,
)  # fmt: skip
COLLECTIVE_MEMBERS = _rank(
    "argus_collective_members", "gauge", "How many ranks belong to the communicator.",
    "group", "group_id",
)  # fmt: skip
COLLECTIVE_NODES = _rank(
    "argus_collective_nodes", "gauge", "How many nodes the communicator spans.",
    "group", "group_id",
)  # fmt: skip
COLLECTIVE_SEQUENCE = _rank(
    "argus_collective_sequence", "gauge",
    "Sequence number of the communicator's last operation in this state (enqueued, completed), of ranks "
    "that have completed no iteration for 60 s.",
    "group", "group_id", "state",
)  # fmt: skip

KERNEL_SECONDS = _rank(
    "argus_kernel_seconds", "histogram", "Duration of one GPU kernel, copy or memset.", "kernel_class",
)  # fmt: skip
KERNEL_ATTRIBUTION = _rank(
    "argus_kernel_attribution", "gauge",
    "How kernels find the phase that launched them (memset, call, api, none), the value is always 1.",
    "attribution",
)  # fmt: skip

CPU_SAMPLES = _rank(
    "argus_cpu_samples_total", "counter",
    "Samples of the training thread's Python stack, by what it was busy with.", "category",
)  # fmt: skip

WORK = _rank("argus_work_total", "counter", "Units of work processed.", "unit", "phase")

WINDOW_ITERATIONS = _rank(
    "argus_window_iterations", "gauge", "How many iterations the window holds.",
)  # fmt: skip
WINDOW_ITERATION_SECONDS = _rank(
    "argus_window_iteration_seconds", "summary",
    "Wall time of the window's iterations.", quantiles=_SPREAD,
)  # fmt: skip
WINDOW_BUSY_SECONDS = _rank(
    "argus_window_busy_seconds", "summary",
    "Union of compute and host time per iteration of the window.", quantiles=_SPREAD,
)  # fmt: skip
WINDOW_PHASE_SECONDS = _rank(
    "argus_window_phase_seconds", "summary",
    "Exclusive time per iteration spent in the phase, over the window.",
    "phase", "kind", quantiles=_SPREAD,
)  # fmt: skip
WINDOW_WORK = _rank(
    "argus_window_work", "gauge",
    "Units of work in the window's typical iteration.", "unit", "phase",
)  # fmt: skip
WINDOW_WORK_SECONDS = _rank(
    "argus_window_work_seconds", "summary",
    "Time of one unit of work in the phase that it was reported for, by iteration of the window.",
    "unit", "phase", "kind", quantiles=("0.0", "0.5"),
)  # fmt: skip
WINDOW_COLLECTIVE_SECONDS = _rank(
    "argus_window_collective_seconds", "summary",
    "Time per occurrence of the collective, over the window.",
    *_COLLECTIVE, quantiles=("0.0", "0.5"),
)  # fmt: skip
WINDOW_COLLECTIVE_OCCURRENCES = _rank(
    "argus_window_collective_occurrences", "gauge",
    "Occurrences of the collective per iteration of the window.", *_COLLECTIVE,
)  # fmt: skip
WINDOW_COLLECTIVE_BANDWIDTH = _rank(
    "argus_window_collective_bytes_per_second", "gauge",
    "Best bandwidth of one occurrence of the collective in the window.", *_COLLECTIVE,
)  # fmt: skip

WINDOW_KERNEL_SECONDS = _rank(
    "argus_window_kernel_seconds", "summary",
    "Duration of one GPU kernel, copy or memset, over the window, by classes that take 0.5 % of iterations.",
    "kernel_class", quantiles=("0.5", "0.9", "0.99"),
)  # fmt: skip

TRACER_ENABLED = _rank("argus_tracer_enabled", "gauge", "Whether the source is recording.", "source")
TRACER_EVENTS = _rank("argus_tracer_events_total", "counter", "Events that the source recorded.", "source")
TRACER_DROPPED = _rank(
    "argus_tracer_dropped_total", "counter", "Events that the source could not record.", "source",
)  # fmt: skip
TRACER_COST = _rank(
    "argus_tracer_cost_seconds_total", "counter", "Time that the source itself took.", "source",
)  # fmt: skip
TRACER_AGE = _rank(
    "argus_tracer_last_event_age_seconds", "gauge", "Seconds since the source's last event.", "source",
)  # fmt: skip
TRACER_GAP = _rank(
    "argus_tracer_gap_seconds_total", "counter",
    "Time in which another tool had taken what the source records.", "source",
)  # fmt: skip
TRACER_LOST = _rank(
    "argus_tracer_lost_iterations_total", "counter",
    "Iterations that the source could not tell, for events of theirs were missing.", "source",
)  # fmt: skip
TRACER_MEMORY = _rank(
    "argus_tracer_memory_bytes", "gauge", "Memory of the source's event buffers.", "source",
)  # fmt: skip

GPU_INFO = _gpu(
    "argus_gpu_info", "gauge", "A GPU and the rank that uses it, the value is always 1.",
    "pci_bus_id", "index", "model", "driver_version",
)  # fmt: skip
GPU_UP = _gpu("argus_gpu_up", "gauge", "Whether the GPU answers; 0 when it has fallen off the bus.")
GPU_AGE = _gpu("argus_gpu_reading_age_seconds", "gauge", "Seconds since the GPU's values were read.")
GPU_CLOCK = _gpu("argus_gpu_clock_hertz", "gauge", "Current clock (sm, memory).", "clock")
GPU_CLOCK_MAX = _gpu("argus_gpu_clock_max_hertz", "gauge", "Highest clock of the GPU (sm, memory).", "clock")
GPU_THROTTLE = _gpu(
    "argus_gpu_throttle_seconds_total", "counter",
    "Time for which clocks were held down, by reason.", "reason",
)  # fmt: skip
GPU_TEMPERATURE = _gpu("argus_gpu_temperature_celsius", "gauge", "Temperature (gpu, memory).", "sensor")
GPU_TEMPERATURE_LIMIT = _gpu(
    "argus_gpu_temperature_limit_celsius", "gauge",
    "Temperature from which on the GPU slows itself down (gpu, memory).", "sensor",
)  # fmt: skip
GPU_POWER = _gpu("argus_gpu_power_watts", "gauge", "Power drawn by the whole board.")
GPU_POWER_LIMIT = _gpu("argus_gpu_power_limit_watts", "gauge", "Power limit in force.")
GPU_ENERGY = _gpu("argus_gpu_energy_joules_total", "counter", "Energy used since the driver was loaded.")
GPU_ECC = _gpu(
    "argus_gpu_ecc_errors_total", "counter",
    "Memory errors (corrected, uncorrected) since the driver was loaded (volatile) or ever (aggregate).",
    "severity", "lifetime",
)  # fmt: skip
GPU_REMAPPED_ROWS = _gpu(
    "argus_gpu_remapped_rows_total", "counter",
    "Memory rows that were replaced by spare ones, by the errors that led to it (corrected, uncorrected).",
    "cause",
)  # fmt: skip
GPU_REMAP_PENDING = _gpu(
    "argus_gpu_row_remap_pending", "gauge", "Whether a row waits for a reset of the GPU to be replaced.",
)  # fmt: skip
GPU_REMAP_FAILED = _gpu(
    "argus_gpu_row_remap_failed", "gauge", "Whether replacing a row has failed; the GPU is to be exchanged.",
)  # fmt: skip
GPU_XID = _gpu(
    "argus_gpu_xid_errors_total", "counter",
    "Errors that the driver reported since the exporter started, by Xid number.", "xid",
)  # fmt: skip
GPU_XID_AGE = _gpu(
    "argus_gpu_xid_age_seconds", "gauge", "Seconds since the last error of this Xid number.", "xid",
)  # fmt: skip
GPU_PCIE_GENERATION = _gpu("argus_gpu_pcie_generation", "gauge", "PCIe generation in use.")
GPU_PCIE_GENERATION_MAX = _gpu(
    "argus_gpu_pcie_generation_max", "gauge", "Highest PCIe generation of this GPU in this machine.",
)  # fmt: skip
GPU_PCIE_LANES = _gpu("argus_gpu_pcie_lanes", "gauge", "PCIe lanes in use.")
GPU_PCIE_LANES_MAX = _gpu(
    "argus_gpu_pcie_lanes_max", "gauge", "Highest number of PCIe lanes of this GPU in this machine.",
)  # fmt: skip
GPU_PCIE_REPLAYS = _gpu("argus_gpu_pcie_replays_total", "counter", "PCIe packets that were sent again.")
GPU_NVLINKS = _gpu("argus_gpu_nvlink_links", "gauge", "NVLink links by state (active, inactive).", "state")
GPU_NVLINK_ERRORS = _gpu(
    "argus_gpu_nvlink_errors_total", "counter", "Errors of all NVLink links, by kind.", "error",
)  # fmt: skip
GPU_UTILIZATION = _gpu(
    "argus_gpu_utilization_ratio", "gauge", "Share of the last moment in which a kernel ran.",
)  # fmt: skip
GPU_PROCESSES = _gpu("argus_gpu_processes", "gauge", "Processes that compute on the GPU.")

COLLECTOR_SUCCESS = Metric(
    "argus_exporter_collector_success", "gauge",
    "Whether the collector succeeded in this scrape.", ("collector",),
)  # fmt: skip
COLLECTOR_DURATION = Metric(
    "argus_exporter_collector_duration_seconds", "gauge",
    "Time that the collector took in this scrape.", ("collector",),
)  # fmt: skip
SEGMENTS = Metric(
    "argus_exporter_segments", "gauge",
    "Segments found, by state (alive, down, incompatible, unreadable, refused).", ("state",),
)  # fmt: skip
RANKS_ENDED = Metric(
    "argus_exporter_ranks_ended", "gauge",
    "Ranks of the run that ended cleanly on this node.", ("run_id",),
)  # fmt: skip
BUILD_INFO = Metric(
    "argus_exporter_build_info", "gauge",
    "Version of the exporter, the value is always 1.", ("version", "layout_version", "pythonversion"),
)  # fmt: skip
SNAPSHOTS = Metric(
    "argus_exporter_snapshots_total", "counter",
    "Alerts that named ranks of this node, by what became of their snapshot (written, limited, failed).",
    ("outcome",),
)  # fmt: skip
SNAPSHOTS_KEPT = Metric("argus_exporter_snapshots", "gauge", "Snapshots of flight recorders on disk.", ())
SNAPSHOTS_BYTES = Metric("argus_exporter_snapshots_bytes", "gauge", "Size of the snapshots on disk.", ())
STACK_DUMPS = Metric(
    "argus_exporter_stack_dumps_total", "counter",
    "Runs that stood still on this node, by what became of their dump of stacks (written, limited, failed).",
    ("outcome",),
)  # fmt: skip

METRICS: tuple[Metric, ...] = tuple(value for value in globals().copy().values() if isinstance(value, Metric))
"""The catalogue, in exposition order."""

BY_NAME: dict[str, Metric] = {metric.name: metric for metric in METRICS}
