"""A measurement as one JSON object."""

from __future__ import annotations

import statistics
from typing import Any

from argus.prometheus import binary_version, find_prometheus
from benchmarks.scale.bench import Measured, Plan, late_lanes
from benchmarks.scale.measure import rule_figures
from benchmarks.scale.pages import targets

RULES_SHARE = 0.25
PEAK_BYTES = 6 << 30
MEDIAN_SECONDS = 60.0
WORST_SECONDS = 90.0


def report(plan: Plan, measured: Measured) -> dict[str, Any]:
    """All figures, and whether each is within its budget."""
    large = plan.jobs[0]
    topology = large.topology
    ranks = sum(job.topology.ranks for job in plan.jobs)
    seen, plain = measured.seen, measured.plain
    rules = rule_figures(seen, plan.interval)
    delays = [delay for delay in measured.delays.values() if delay is not None]
    wrong = {run_id: str(verdict) for run_id, verdict in measured.verdicts.items() if not verdict.right}
    lanes = sorted(late_lanes(large))
    stages = measured.reduce_scatter
    shorter = len(stages) == topology.pp and all(late < other for late, other in stages.values())
    cpu = {
        "with_rules": round(seen.cpu["prometheus"], 3),
        "server_of_pages": round(seen.cpu["server"], 3),
    }
    memory = {**seen.memory, "go_heap": seen.heap}
    if plain is not None:
        cpu["without_rules"] = round(plain.cpu["prometheus"], 3)
        cpu["rules"] = round(seen.cpu["prometheus"] - plain.cpu["prometheus"], 3)
        memory["peak_without_rules"] = plain.memory["peak"]
    return {
        "prometheus": ".".join(map(str, binary_version(plan.binary or find_prometheus()))),
        "format": plan.format,
        "served": plan.series.value,
        "job": {
            "ranks": topology.ranks,
            "nodes": topology.nodes,
            "sizes": f"TP {topology.tp}, PP {topology.pp}, DP {topology.dp}, EP {topology.ep}",
            "small_jobs": len(plan.jobs) - 1,
            "ranks_of_all": ranks,
            "targets": len(targets(plan.jobs)),
            "bytes_per_rank_and_scrape": round(measured.page_bytes / ranks),
        },
        "series": seen.series,
        "series_per_rank": round(seen.series / ranks, 1),
        "samples_per_second": round(seen.samples),
        "rules": rules,
        "cpu_cores": cpu,
        "memory_bytes": memory,
        "verdict": {
            "wrong": wrong,
            "accused": _accused(measured, large.run_id),
            "late_lanes": f"{lanes[0]}-{lanes[-1]}",
            "reduce_scatter_seconds_late_and_others": stages,
            "reduce_scatter_shorter_everywhere": shorter,
        },
        "fault_to_notification_seconds": {
            large.run_id: _rounded(measured.delays[large.run_id]),
            "jobs": len(delays),
            "median": _rounded(statistics.median(delays) if delays else None),
            "worst": _rounded(max(delays, default=None)),
        },
        "dashboards": measured.panels,
        "within_budget": {
            "rules": rules["share_of_interval"] <= RULES_SHARE and not rules["not_evaluated"],
            "memory": seen.memory["peak"] <= PEAK_BYTES,
            "verdict": not wrong and shorter,
            "notification": len(delays) == len(plan.jobs)
            and statistics.median(delays) <= MEDIAN_SECONDS
            and max(delays) <= WORST_SECONDS,
        },
    }


def _accused(measured: Measured, run_id: str) -> dict[str, list[str]]:
    """Of one job: by alert, severity, phase and class, the ranks that were named."""
    found: dict[str, list[str]] = {}
    for pairs in sorted(measured.seen.fired):
        labels = dict(pairs)
        if labels.get("run_id") == run_id:
            parts = (labels.get(name, "") for name in ("alertname", "severity", "phase", "kernel_class"))
            found.setdefault(" ".join(filter(None, parts)), []).append(labels.get("rank", "-"))
    return found


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)
