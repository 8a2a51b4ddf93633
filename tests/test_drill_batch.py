"""Many drills at once (benchmarks/drills): the same series as real segments and exporters give."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

import pytest
from benchmarks.drills.batch import Run, Verdict
from benchmarks.drills.series import STAGGER, Recording

from argus import ruleset
from argus.drill.topology import Topology
from drill_support import simulate

Series = dict[frozenset[tuple[str, str]], dict[int, float]]
ONE_NODE = {
    "link-ep": (Topology(dp=8, pp=2, ep=2, per_node=64), 330.0),
    "straggler": (Topology(dp=2, tp=2, pp=2, cp=2, chunks=2, per_node=64), 210.0),
    "restart": (Topology(dp=2, pp=2, per_node=64), 300.0),
    "checkpoint": (Topology(dp=2, pp=2, per_node=64), 240.0),
    "hang": (Topology(dp=2, pp=3, per_node=64), 240.0),
    "skewed-straggler": (Topology(dp=4, pp=2, ep=4, per_node=64), 210.0),
    "skewed-work-unknown": (Topology(dp=4, pp=2, ep=4, per_node=64), 210.0),
    "rank-down": (Topology(dp=2, pp=2, per_node=64), 240.0),
}
"""Scrapes of one node are not staggered, neither here nor there."""

LEFT_OUT = {
    "argus_collective_sequence": "all members of a modelled communicator have come equally far",
    "argus_window_iteration_seconds_sum": "for kernels, which the model has not",
    "argus_window_iteration_seconds_count": "for kernels",
}
AGES = ("argus_iteration_age_seconds", "argus_phase_open_seconds")


def key(series: str) -> frozenset[tuple[str, str]]:
    """Metric and labels, without those that only tell where they were scraped."""
    labels = dict(re.findall(r'(\w+)="([^"]*)"', series))
    for name in ("job", "instance", "node", "local_rank", "gpu_uuid", "pci_bus_id", "run_id"):
        labels.pop(name, None)
    return frozenset({("", series.partition("{")[0]), *labels.items()})


def values(text: str) -> Iterator[tuple[int, float]]:
    """(slot, value) of promtool's notation; NaN: the series ends there."""
    slot = 0
    for token in text.split():
        value, _, times = token.partition("x")
        count = int(times) + (value != "_") if times else 1
        if value != "_":
            yield from ((slot + i, math.nan if value == "stale" else float(value)) for i in range(count))
        slot += count


@pytest.mark.parametrize("name", ONE_NODE)
def test_series_are_those_of_real_exporters(name: str) -> None:
    topology, seconds = ONE_NODE[name]
    simulation, _ = simulate(name, topology, seconds=seconds, since=100.0, seed=3)
    step = round(15 / simulation.grid)
    real: Series = {}
    for series, samples in simulation._series.items():
        found = {slot // step: math.nan if v == "stale" else float(v) for slot, v in samples.items()}
        real[key(series)] = found

    recording = Recording(Run(name, topology, since=100.0, seed=3).job(), "drill", 15.0)
    recording.run(seconds)
    ours = {
        key(series): {slot // STAGGER: v for slot, v in values(text) if slot % STAGGER == 0}
        for series, text in recording.lines()
    }
    for series, samples in ours.items():
        # An exporter tells ages in whole milliseconds.
        least = 6e-4 if dict(series)[""] in AGES else 2e-9
        assert samples == pytest.approx(real[series], rel=2e-6, abs=least, nan_ok=True), series
    # And nothing that rules read is left out.
    rules = "\n".join(ruleset.load().values())
    for series in real.keys() - ours.keys():
        labels = dict(series)
        read = re.search(rf"\b{labels['']}\b", rules)
        slowest = labels.get("quantile") == "1.0" or labels[""].startswith("argus_window_busy")
        left_out = slowest or labels[""] in LEFT_OUT or labels.get("kind") == "communication"
        # GPUs are shown by the real exporter only.
        left_out = left_out or labels[""].startswith("argus_gpu_")
        assert not read or left_out, series


def test_how_often_an_alert_begins() -> None:
    one, other = {"alertname": "A", "severity": "warning"}, {"alertname": "A", "severity": "critical"}
    verdict = Verdict(Run("healthy").job().truth, {15: [one], 30: [other], 45: [], 60: [one]})
    assert sorted(verdict.starts().values()) == [1, 2]
    assert verdict.starts("severity") == {frozenset({("alertname", "A")}): 2}
