"""The pieces of `make bench-scale` at toy size: 16 ranks, a second for every 15, one Prometheus."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml
from benchmarks.scale.bench import LEAN, Plan, measure
from benchmarks.scale.job import Job
from benchmarks.scale.report import report

from argus import ruleset
from argus.drill.timing import Profile
from argus.drill.topology import Topology
from argus.progress import Progress

ROOT = Path(__file__).parent.parent
SPEEDS = (15.0, 5.0)
"""Times as fast as life; a machine that is too busy to keep up with the first gets more time."""


def _measured(speed: float, binary: Path, folder: Path) -> dict[str, Any]:
    # Short iterations: 64 of them, a full window, take 3.2 s at a speed of 15.
    job = Job(
        "paper", "masked-straggler", Topology(dp=8, pp=2, ep=4), since=3 * 15.0,
        profile=Profile(iteration=0.05 * 15.0), speed=speed,
    )  # fmt: skip
    plan = Plan(
        (job,), scrapes=11, healthy=3, interval=15.0 / speed, lean=True, ingestion=False, binary=binary
    )
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
    # With everything on, but for what was dropped.
    assert 150 < figures["series_per_rank"] < 400
    groups = {group["name"] for text in ruleset.load().values() for group in yaml.safe_load(text)["groups"]}
    # Groups of every fourth second are evaluated but twice, and the first evaluation does not count.
    assert len(figures["rules"]["groups"]) > len(groups) / 2
    assert set(figures["rules"]["groups"]) <= groups
    assert 0 < figures["rules"]["share_of_interval"] < 1
    assert set(figures["dashboards"]["seconds_by_dashboard"]) > {"argus-run", "argus-rank"}


def test_no_rule_reads_what_the_largest_jobs_are_advised_to_drop() -> None:
    lean = re.compile(LEAN)
    for text in ruleset.load().values():
        for group in yaml.safe_load(text)["groups"]:
            for rule in group["rules"]:
                read = re.findall(r"argus_\w+", rule["expr"])
                assert not [name for name in read if lean.fullmatch(name)], rule.get("record")
    assert LEAN in (ROOT / "docs" / "scale.md").read_text()
