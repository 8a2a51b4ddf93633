"""Devices of a run: the hottest, the throttled, the ones with errors.  Evidence, never a verdict."""

from __future__ import annotations

from dashboards.factory import Draft, Page, Query
from dashboards.findings import findings
from dashboards.navigation import (
    FILTERS_VARIABLE,
    HARDWARE,
    RUN_VARIABLE,
    RUNBOOKS_VARIABLE,
    SOURCE_VARIABLE,
    cell,
    label,
    others,
    to_rank,
    variable,
)
from dashboards.panels import Column, number, series, steps, table

G = 'run_id="$run_id", role=~"$role"'
HEAT = 'reason=~"thermal|hw_thermal|power_brake"'
MOST = 15
ALERTS_OF_HARDWARE = "ArgusGpuThrottled|ArgusGpuMemoryErrors|ArgusPcieDegraded|ArgusNvlinkDegraded"

# Devices, not their rules, decide which roles there are: hardware is told of runs without iterations too.
ROLE_VARIABLE = variable("role", "Role", 'label_values(argus_gpu_up{run_id="$run_id"}, role)', several=True)


def trouble(matchers: str, about: str) -> Draft:
    """What the rules found worth telling of the GPUs' own reports."""
    return table(
        "Trouble",
        f"{about}: throttling, clocks, memory, links, in words, with the number that belongs to it. Usually "
        "empty. It explains why a rank is slow; whether it is, its own time says.",
        "none",
        Query(
            f"topk(50, max by (rank, role, area, trouble) (rank_trouble:argus_gpu_trouble:max{{{matchers}}}))"
        ),
        columns=[Column("rank", link=to_rank(cell("rank")))],
        width=24,
        height=6,
    )


def page() -> Page:
    hardware = Page(
        HARDWARE,
        "ARGUS / hardware",
        "GPUs of one run, through NVML. A hot or throttled GPU is the explanation of a slow rank, not "
        "its proof: "
        "see whether the rank is accused.",
        [SOURCE_VARIABLE, RUN_VARIABLE, ROLE_VARIABLE, FILTERS_VARIABLE, RUNBOOKS_VARIABLE],
        others(HARDWARE, run=True),
        events=f'run_id="$run_id", alertname=~"{ALERTS_OF_HARDWARE}"',
    )
    hardware.row("In short", *_in_short())
    hardware.row("Clocks, heat, power", *_heat())
    hardware.row("Errors", *_errors())
    hardware.row("Links", *_links())
    return hardware


def _in_short() -> list[Draft]:
    return [
        number("GPUs", "GPUs that ranks of this run use.", "none", Query(f"count(argus_gpu_up{{{G}}})")),
        number(
            "Off the bus",
            "GPUs that do not answer any more.",
            "none",
            Query(f"count(argus_gpu_up{{{G}}} == 0) or vector(0)"),
            limits=steps(("green", None), ("red", 1)),
        ),
        number(
            "Throttled",
            "GPUs whose clocks were held down by heat or the machine's power brake for more than 2 % of the "
            "last five minutes.",
            "none",
            Query(
                "count(max by (rank, gpu_uuid) "
                f"(rate(argus_gpu_throttle_seconds_total{{{G}, {HEAT}}}[5m])) > 0.02) or vector(0)"
            ),
            limits=steps(("green", None), ("orange", 1)),
        ),
        number(
            "Power",
            "Drawn by all GPUs of the run.",
            "watt",
            Query(f"sum(argus_gpu_power_watts{{{G}}})"),
        ),
        number(
            "Energy in the time range",
            "Used by all GPUs of the run.",
            "joule",
            Query(f"sum(increase(argus_gpu_energy_joules_total{{{G}}}[$__range]))"),
        ),
        number(
            "Oldest reading",
            "Age of the oldest values: NVML hangs there, or the exporter does.",
            "s",
            Query(f"max(argus_gpu_reading_age_seconds{{{G}}})"),
        ),
        trouble(G, "What the GPUs of the run report"),
        findings(
            f'run_id="$run_id", alertname=~"{ALERTS_OF_HARDWARE}"',
            "What the hardware rules noticed; informative, quoted where a rank is accused.",
        ),
    ]


def _worst(title: str, about: str, unit: str, expr: str, legend: str, *, zero: bool = True) -> Draft:
    return series(
        title,
        about,
        unit,
        Query(
            expr,
            legend,
        ),
        links=[to_rank(label("rank"))],
        width=8,
        zero=zero,
    )


def _heat() -> list[Draft]:
    return [
        _worst(
            "Slowest clocks",
            f"The {MOST} GPUs with the lowest SM clock, as a share of the highest it has.",
            "percentunit",
            f'bottomk({MOST}, max by (rank, gpu_uuid) (argus_gpu_clock_hertz{{{G}, clock="sm"}} '
            f'/ on (run_id, role, rank, gpu_uuid, clock) argus_gpu_clock_max_hertz{{{G}, clock="sm"}}))',
            "rank {{rank}}",
        ),
        _worst(
            "Most throttled",
            f"The {MOST} GPUs whose clocks are held down most, and by what, as a share of the time: what the "
            "rules found worth telling. The power limit counts only where peers meet it less.",
            "percentunit",
            f"topk({MOST}, max by (rank, trouble) "
            f'(rank_trouble:argus_gpu_trouble:max{{{G}, area="throttle"}}))',
            "rank {{rank}}: {{trouble}}",
        ),
        _worst(
            "Hottest",
            f"The {MOST} hottest sensors.",
            "celsius",
            f"topk({MOST}, max by (rank, gpu_uuid, sensor) (argus_gpu_temperature_celsius{{{G}}}))",
            "rank {{rank}} {{sensor}}",
            zero=False,
        ),
        series(
            "Temperature of all",
            "Coolest, typical and hottest GPU of the run.",
            "celsius",
            *(
                Query(f'quantile({share}, argus_gpu_temperature_celsius{{{G}, sensor="gpu"}})', name)
                for share, name in (("0", "coolest"), ("0.5", "typical"), ("1", "hottest"))
            ),
            width=8,
            zero=False,
            coarse=True,
        ),
        series(
            "SM clock of all",
            "Slowest, typical and fastest GPU of the run.",
            "hertz",
            *(
                Query(f'quantile({share}, argus_gpu_clock_hertz{{{G}, clock="sm"}})', name)
                for share, name in (("0", "slowest"), ("0.5", "typical"), ("1", "fastest"))
            ),
            width=8,
            coarse=True,
        ),
        series(
            "Utilization of all",
            "Share of the last moment in which a kernel ran: least busy, typical and busiest GPU. A kernel "
            "that waits for a peer counts as busy, so this does not tell culprit from victim.",
            "percentunit",
            *(
                Query(f"quantile({share}, argus_gpu_utilization_ratio{{{G}}})", name)
                for share, name in (("0", "least"), ("0.5", "typical"), ("1", "most"))
            ),
            width=8,
            coarse=True,
        ),
    ]


def _errors() -> list[Draft]:
    rank = Column("rank", link=to_rank(cell("rank")))
    return [
        table(
            "Errors of the driver (Xid)",
            "GPUs with Xid errors since the exporter started, and how long ago the last one came.",
            "none",
            Query(f"topk(50, max by (rank, gpu_uuid, xid) (argus_gpu_xid_errors_total{{{G}}}) > 0)"),
            Query(
                f"max by (rank, gpu_uuid, xid) (argus_gpu_xid_age_seconds{{{G}}}) and on (rank, "
                "gpu_uuid, xid) "
                f"topk(50, max by (rank, gpu_uuid, xid) (argus_gpu_xid_errors_total{{{G}}}) > 0)"
            ),
            columns=[rank, Column("Value #A", "errors"), Column("Value #B", "last one ago", "s")],
        ),
        table(
            "Memory errors",
            "GPUs with ECC errors since the driver was loaded; uncorrected ones end the process that met "
            "them.",
            "none",
            Query(
                "topk(50, max by (rank, gpu_uuid, severity) "
                f'(argus_gpu_ecc_errors_total{{{G}, lifetime="volatile"}}) > 0)'
            ),
            columns=[rank, Column("Value", "errors")],
            sort="errors",
        ),
        table(
            "Memory rows replaced",
            "GPUs with a row that waits for a reset to be replaced, or whose replacement failed "
            "(exchange the GPU).",
            "none",
            Query(f"topk(50, max by (rank, gpu_uuid) (argus_gpu_row_remap_pending{{{G}}}) > 0)"),
            Query(f"topk(50, max by (rank, gpu_uuid) (argus_gpu_row_remap_failed{{{G}}}) > 0)"),
            columns=[
                rank,
                Column("Value #A", "pending", limits=steps(("green", None), ("orange", 1))),
                Column("Value #B", "failed", limits=steps(("green", None), ("red", 1))),
            ],
        ),
    ]


def _links() -> list[Draft]:
    rank = Column("rank", link=to_rank(cell("rank")))
    on = "on (run_id, role, rank, gpu_uuid)"
    return [
        table(
            "PCIe below its best",
            "GPUs that use fewer lanes or a lower generation than they can in this machine. An idle GPU "
            "lowers its generation by itself.",
            "none",
            Query(
                f"topk(50, max by (rank, gpu_uuid) (argus_gpu_pcie_lanes{{{G}}} < {on} "
                f"argus_gpu_pcie_lanes_max{{{G}}}))"
            ),
            Query(
                "topk(50, max by (rank, gpu_uuid) "
                f"(argus_gpu_pcie_generation{{{G}}} < {on} argus_gpu_pcie_generation_max{{{G}}}))"
            ),
            columns=[rank, Column("Value #A", "lanes"), Column("Value #B", "generation")],
        ),
        _worst(
            "PCIe packets sent again",
            f"The {MOST} GPUs with most of them, in the last five minutes.",
            "none",
            f"topk({MOST}, max by (rank, gpu_uuid) (increase(argus_gpu_pcie_replays_total{{{G}}}[5m])) > 0)",
            "rank {{rank}}",
        ),
        _worst(
            "NVLink errors",
            f"The {MOST} GPUs with most of them, in the last five minutes, by kind.",
            "none",
            f"topk({MOST}, max by (rank, gpu_uuid, error) "
            f"(increase(argus_gpu_nvlink_errors_total{{{G}}}[5m])) > 0)",
            "rank {{rank}} {{error}}",
        ),
        series(
            "NVLink links",
            "Links of all GPUs of the run, by state.",
            "none",
            Query(f"sum by (state) (argus_gpu_nvlink_links{{{G}}})", "{{state}}"),
            width=12,
            coarse=True,
        ),
    ]
