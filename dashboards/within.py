"""Inside a rank: its kernels, what Python does, and the device."""

from __future__ import annotations

from dashboards.factory import Draft, Query
from dashboards.hardware import trouble
from dashboards.histograms import quantile
from dashboards.panels import AGAINST_PEERS, note, series

R = 'run_id="$run_id"'
ME = f'{R}, rank="$rank"'
PEERS = f'{R}, role="$role"'

COMMANDS = """
In depth, for rank **$rank** of run **$run_id** (on its node, or where the exporters can be reached):

- `argus trace --run-id $run_id --rank $rank -o rank.pftrace.gz`: its last events, to open in Perfetto.
- `argus stacks --run-id $run_id --rank $rank`: what its Python code was busy with (`--dump`: at this moment).
- `argus doctor`: whether the node and the rank are as ARGUS needs them.

How to read this page: the bars of waiting tell the opposite of blame. A rank that others wait for comes
last, so *its* collectives are the short ones; a rank with long collectives is a victim. Compute and host
phases hold no waiting: who is above its peers there is slow.
"""


def kernels() -> list[Draft]:
    return [
        series(
            "GPU time by class of kernels",
            "GPU seconds per second, by class. Communication kernels can spin while they wait.",
            "percentunit",
            Query(
                f"max by (kernel_class) (rate(argus_window_kernel_seconds_sum{{{ME}}}[$__rate_interval]))",
                "{{kernel_class}}",
            ),
            stack=True,
        ),
        series(
            "Kernels against peers: typical",
            "Median duration of one kernel of each class, divided by the typical rank's.",
            "none",
            Query(_kernels_against_peers("0.5"), "{{kernel_class}}"),
            limits=AGAINST_PEERS,
        ),
        series(
            "Kernels against peers: slowest hundredth",
            "0.99 quantile, divided by the typical rank's. High here and 1 in the median: something disturbs "
            "the device now and then.",
            "none",
            Query(_kernels_against_peers("0.99"), "{{kernel_class}}"),
            limits=AGAINST_PEERS,
        ),
        series(
            "Duration of kernels",
            "Median of single kernels by class, from the histogram. Needs native histograms, or "
            "exporters with --histogram.classic=all.",
            "s",
            Query(quantile("0.5", "argus_kernel_seconds", ME, "kernel_class"), "{{kernel_class}}"),
        ),
    ]


def _kernels_against_peers(share: str) -> str:
    return (
        f'max by (kernel_class) (argus_window_kernel_seconds{{{ME}, quantile="{share}"}} '
        "/ on (run_id, role, kernel_class, quantile) group_left () "
        f"role_class:argus_window_kernel_seconds:median{{{R}}})"
    )


def host() -> list[Draft]:
    samples = f"sum by (category) (rate(argus_cpu_samples_total{{{ME}}}[$__rate_interval]))"
    return [
        series(
            "What Python does",
            "Samples of the Python stack by category, as shares. Much gc, jit_compile, data_loading or "
            "checkpoint explains a host phase; collective_wait is waiting for others.",
            "percentunit",
            Query(f"{samples} / on () group_left () sum({samples})", "{{category}}"),
            stack=True,
        ),
        note(
            "In depth",
            "Commands that show more than metrics can.",
            COMMANDS.strip(),
        ),
    ]


def device() -> list[Draft]:
    return [
        trouble(ME, "What the GPU of this rank reports"),
        series(
            "Clocks",
            "Current clocks of the rank's GPU against the highest it has.",
            "percentunit",
            Query(
                f"max by (clock) (argus_gpu_clock_hertz{{{ME}}} "
                "/ on (gpu_uuid, clock) group_left () max by (gpu_uuid, clock) "
                f"(argus_gpu_clock_max_hertz{{{ME}}}))",
                "{{clock}}",
            ),
            width=8,
        ),
        series(
            "Throttling",
            "Share of the time for which clocks were held down, by reason.",
            "percentunit",
            Query(
                f"max by (reason) (rate(argus_gpu_throttle_seconds_total{{{ME}}}[$__rate_interval]))",
                "{{reason}}",
            ),
            width=8,
        ),
        series(
            "Temperature",
            "Of the GPU and its memory.",
            "celsius",
            Query(f"max by (sensor) (argus_gpu_temperature_celsius{{{ME}}})", "{{sensor}}"),
            width=8,
            zero=False,
        ),
        series(
            "Power",
            "Drawn by the board, and the limit in force. At the limit, clocks go down.",
            "watt",
            Query(f"max(argus_gpu_power_watts{{{ME}}})", "drawn"),
            Query(f"max(argus_gpu_power_limit_watts{{{ME}}})", "limit"),
            width=8,
        ),
        series(
            "Errors",
            "Memory errors (ECC), PCIe packets sent again, NVLink errors, and errors of the driver "
            "(Xid), within the last hour.",
            "none",
            Query(
                f'max by (severity) (increase(argus_gpu_ecc_errors_total{{{ME}, lifetime="volatile"}}[1h]))',
                "ECC {{severity}}",
            ),
            Query(f"max(increase(argus_gpu_pcie_replays_total{{{ME}}}[1h]))", "PCIe replays"),
            Query(f"sum(increase(argus_gpu_nvlink_errors_total{{{ME}}}[1h]))", "NVLink"),
            Query(f"max by (xid) (increase(argus_gpu_xid_errors_total{{{ME}}}[1h]))", "Xid {{xid}}"),
            width=8,
        ),
        series(
            "PCIe",
            "Generation and lanes in use, as a share of what this GPU can have in this machine. Idle "
            "GPUs lower the generation.",
            "percentunit",
            Query(
                f"max(argus_gpu_pcie_generation{{{ME}}}) / max(argus_gpu_pcie_generation_max{{{ME}}})",
                "generation",
            ),
            Query(f"max(argus_gpu_pcie_lanes{{{ME}}}) / max(argus_gpu_pcie_lanes_max{{{ME}}})", "lanes"),
            width=8,
        ),
    ]
