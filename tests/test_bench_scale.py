"""The pieces of `make bench-scale` at toy size: 16 ranks, a second for every 15, one Prometheus."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from benchmarks.scale.__main__ import parse, plan_of
from benchmarks.scale.bench import Plan, measure
from benchmarks.scale.job import Job
from benchmarks.scale.pages import FORMATS, series_per_rank
from benchmarks.scale.report import report

from argus import ruleset
from argus.drill.timing import Profile
from argus.drill.topology import Topology
from argus.exporter.selection import Series
from argus.progress import Progress

SPEEDS = (15.0, 5.0)
"""Times as fast as life; a machine that is too busy to keep up with the first gets more time."""


def _measured(speed: float, binary: Path, folder: Path) -> dict[str, Any]:
    # Short iterations: 64 of them, a full window, take 3.2 s at a speed of 15.
    job = Job(
        "paper", "masked-straggler", Topology(dp=8, pp=2, ep=4), since=3 * 15.0,
        profile=Profile(iteration=0.05 * 15.0), speed=speed,
    )  # fmt: skip
    plan = Plan((job,), scrapes=11, healthy=3, interval=15.0 / speed, ingestion=False, binary=binary)
    return report(plan, measure(plan, folder, Progress(quiet=True)))


def test_a_toy_job_is_scraped_and_judged(prometheus_binary: Path, tmp_path: Path) -> None:
    for speed in SPEEDS:
        figures = _measured(speed, prometheus_binary, tmp_path / str(speed))
        if not figures["verdict"]["wrong"]:
            break

    # Lane 6 of the last stage: the second expert group of four, from its middle on.
    assert figures["verdict"]["wrong"] == {}
    assert figures["verdict"]["accused"]["ArgusComputeStraggler critical mlp"] == ["14"]
    assert figures["verdict"]["late_lanes"] == "4-7"
    assert figures["job"]["targets"] == 2
    assert set(figures["verdict"]["reduce_scatter_seconds_late_and_others"]) == {"pp0", "pp1"}
    # With all layers on, the series that rules record among them.
    assert 100 < figures["series_per_rank"] < 200
    groups = {group["name"] for text in ruleset.load().values() for group in yaml.safe_load(text)["groups"]}
    # Groups of every fourth second are evaluated but twice, and the first evaluation does not count.
    assert len(figures["rules"]["groups"]) > len(groups) / 2
    assert set(figures["rules"]["groups"]) <= groups
    assert 0 < figures["rules"]["share_of_interval"] < 1
    assert set(figures["dashboards"]["seconds_by_dashboard"]) > {"argus-run", "argus-rank"}


def test_a_rank_of_the_largest_job_exports_what_one_prometheus_can_hold() -> None:
    (job, *_) = plan_of(parse([])).jobs
    assert job.topology.ranks == 12_960
    rules = {name: series_per_rank(job, Series.RULES, format_) for name, format_ in FORMATS.items()}
    # 6 GiB hold about 165, with 15 that rules record and room for what a fault adds.
    assert 100 < rules["text"] < 145
    assert rules["protobuf"] == rules["text"]
    assert series_per_rank(job, Series.ALL, FORMATS["text"]) > 2 * rules["text"]
