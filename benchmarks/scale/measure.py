"""What a Prometheus does while it is scraped: rule times, CPU, memory, series, alerts."""

from __future__ import annotations

import contextlib
import re
import statistics
import time
import urllib.request
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from argus.prometheus import Prometheus, QueryError

_SETTLING = 45.0
"""Seconds from the beginning in which nothing is measured: series are created only once."""


def cpu_seconds(pid: int) -> float:
    """CPU time of a process so far, from its threads: finer than the ticks of its own ``stat``."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # a thread that has ended
            total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


def memory(pid: int) -> dict[str, int]:
    """Bytes of a process: resident at its peak and now; of that now, its own (not pages of files)."""
    status = Path(f"/proc/{pid}/status").read_text()
    names = {"peak": "VmHWM", "resident": "VmRSS", "anonymous": "RssAnon"}
    found = {name: re.search(rf"{key}:\s+(\d+) kB", status) for name, key in names.items()}
    return {name: int(match[1]) * 1024 for name, match in found.items() if match}


def own_metrics(prometheus: Prometheus, *names: str) -> dict[str, float]:
    """Some of its metrics without labels, from its own page."""
    page = urllib.request.urlopen(f"{prometheus.url}/metrics", timeout=30).read().decode()
    found = {name: re.search(rf"^{name} (\S+)$", page, re.MULTILINE) for name in names}
    return {name: float(match[1]) for name, match in found.items() if match}


@dataclass
class Observation:
    """Of one Prometheus, from a beginning on.

    Attributes:
        evaluations: By group and rule ("" for the group), seconds of each evaluation.
        intervals: Of each group, seconds.
        fired: Labels of every alert that was firing, as sorted pairs.
        cpu: Cores of Prometheus and of the server of pages, while it was measured.
        samples: Appended per second.
        series: In memory.
        heap, memory: Bytes.
    """

    evaluations: dict[tuple[str, str], list[float]] = field(default_factory=lambda: defaultdict(list))
    intervals: dict[str, float] = field(default_factory=dict)
    fired: set[tuple[tuple[str, str], ...]] = field(default_factory=set)
    cpu: dict[str, float] = field(default_factory=dict)
    samples: float = 0.0
    series: int = 0
    heap: int = 0
    memory: dict[str, int] = field(default_factory=dict)


def observe(
    prometheus: Prometheus,
    processes: Mapping[str, int],
    begin: float,
    seconds: float,
    settling: float = _SETTLING,
) -> Observation:
    """Watch it.

    Args:
        prometheus: It.
        processes: Name to process id: whose CPU time is measured.
        begin: When the job begins (``time.time``).
        seconds: How long from there.
        settling: Of these, how many are left out at first.
    """
    seen = Observation()
    known: dict[str, str] = {}
    names = (
        "prometheus_tsdb_head_samples_appended_total",
        "prometheus_tsdb_head_series",
        "go_memstats_heap_inuse_bytes",
    )
    _until(begin + settling)
    began, before = time.time(), {name: cpu_seconds(pid) for name, pid in processes.items()}
    appended = _appended(prometheus)
    while True:
        _until(min(time.time() + seconds / 48, begin + seconds))
        try:
            _rules(prometheus.client.rules(), known, seen)
            for alert in prometheus.client.alerts():
                if alert["state"] == "firing":
                    seen.fired.add(tuple(sorted(alert["labels"].items())))
        except QueryError:
            continue  # it is busy; the next round sees the same
        if time.time() >= begin + seconds:
            break
    passed = time.time() - began
    seen.cpu = {name: (cpu_seconds(pid) - before[name]) / passed for name, pid in processes.items()}
    seen.samples = (_appended(prometheus) - appended) / passed
    found = own_metrics(prometheus, *names[1:])
    seen.series, seen.heap = int(found[names[1]]), int(found[names[2]])
    seen.memory = memory(prometheus.pid)
    return seen


def _appended(prometheus: Prometheus) -> float:
    page = urllib.request.urlopen(f"{prometheus.url}/metrics", timeout=30).read().decode()
    return sum(
        float(value)
        for value in re.findall(r"^prometheus_tsdb_head_samples_appended_total(?:\{.*\})? (\S+)$", page, re.M)
    )


def _until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.time()))


def _rules(groups: list[dict[str, Any]], known: dict[str, str], seen: Observation) -> None:
    """Take in every evaluation that is new."""
    for group in groups:
        name = group["name"]
        seen.intervals[name] = float(group["interval"])
        if known.get(name) != group["lastEvaluation"]:
            if name in known:  # the first one may have been in the settling
                seen.evaluations[name, ""].append(float(group["evaluationTime"]))
                for rule in group["rules"]:
                    seen.evaluations[name, rule["name"]].append(float(rule["evaluationTime"]))
            known[name] = group["lastEvaluation"]


def rule_figures(seen: Observation, interval: float) -> dict[str, Any]:
    """Seconds that rules take in an interval of scrapes, in all, by group, and the dearest of them."""
    groups, rules = {}, []
    for (group, rule), times in seen.evaluations.items():
        share = interval / seen.intervals[group]
        typical = statistics.median(times)
        if rule:
            # Several rules may have one name: the list holds each once per evaluation.
            count = len(times) / max(1, len(seen.evaluations[group, ""]))
            rules.append((statistics.mean(times) * count * share, group, rule))
        else:
            groups[group] = {
                "every_seconds": seen.intervals[group],
                "evaluations": len(times),
                "seconds_median": round(typical, 4),
                "seconds_worst": round(max(times), 4),
                "seconds_per_interval": round(typical * share, 4),
            }
    total = sum(group["seconds_per_interval"] for group in groups.values())
    dearest = [
        {"group": group, "rule": rule, "seconds_per_interval": round(seconds, 4)}
        for seconds, group, rule in sorted(rules, reverse=True)[:12]
    ]
    return {
        "seconds_per_interval": round(total, 3),
        "share_of_interval": round(total / interval, 4),
        "not_evaluated": sorted(seen.intervals.keys() - groups.keys()),
        "groups": dict(sorted(groups.items(), key=lambda item: -item[1]["seconds_per_interval"])),
        "dearest": dearest,
    }
