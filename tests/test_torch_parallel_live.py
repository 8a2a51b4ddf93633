"""Sharded and pipelined torch jobs, live: the slow rank, the slow stage and who holds up a hang are named."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from argus import ruleset
from argus._native import monotonic_ns
from argus.diagnose.verdict import LIVENESS
from argus.exporter.sources import Rank as Found
from argus.exporter.sources import Scan
from argus.prometheus import Prometheus
from argus.segment.reader import read
from argus.segment.state import RankState
from exporter_support import until
from ranks_support import ranks
from simulation import Simulation

pytest.importorskip("torch", reason="torch is not installed (pip install argus-gpu[torch])")

JOB = Path(__file__).with_name("torch_parallel_job.py")
SCRAPE_S = 0.5
"""Stands for the rules' 15 s; every duration in them shrinks likewise."""
CONFIG = """
global: {{scrape_interval: {scrape}ms, evaluation_interval: {scrape}ms}}
rule_files: [rules/*.yml]
scrape_configs: [{{job_name: argus, static_configs: [{{targets: ["{target}"]}}]}}]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Both jobs run; their segments, and a folder of signals for each."""
    base = tmp_path_factory.mktemp("jobs")
    with ExitStack() as stack:
        running = []
        for kind in ("fsdp", "pipeline"):
            signals = base / kind
            signals.mkdir()
            command = [str(JOB), kind, str(signals)]
            jobs = ranks(command, ARGUS_DIR=str(base), ARGUS_RUN_ID=kind, ARGUS_FLIGHT_EVENTS="0")
            running.append(stack.enter_context(jobs))
        yield base
        for kind in ("fsdp", "pipeline"):
            (base / kind / "stop").touch()
        for job in running:
            job.join()


def states(base: Path, run: str) -> list[RankState]:
    """What both ranks' segments hold now, by rank."""
    files = sorted((base / f"argus-{os.getuid()}").glob(f"{run}.*.seg"))
    return [read(file.read_bytes(), monotonic_ns()) for file in files]


def trained(base: Path, run: str) -> bool:
    found = states(base, run)
    return len(found) == 2 and all(state.window() is not None for state in found)


@pytest.fixture(scope="module")
def target(folder: Path) -> Iterator[str]:
    """Address of an ``argus exporter`` that serves them."""
    until(lambda: trained(folder, "fsdp") and trained(folder, "pipeline"), 120)
    command = [sys.executable, "-m", "argus.cli", "exporter", "--segments.directory", str(folder)]
    command += ["--web.listen-address", "127.0.0.1:0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines = (re.search(r"listening on http://(\S+)/", line) for line in process.stderr)
        found = next(filter(None, lines))
        yield found[1]
        process.kill()


def test_the_slow_rank_and_the_slow_stage_are_named(target: str, prometheus_binary: Path) -> None:
    rules = ruleset.render(15.0, SCRAPE_S / 15.0)
    config = CONFIG.format(scrape=round(SCRAPE_S * 1000), target=target)
    expected = {
        ("ArgusComputeStraggler", "fsdp", "1", "forward"),
        ("ArgusStageImbalance", "pipeline", "", ""),
    }
    with Prometheus(config, rules, binary=prometheus_binary) as prometheus:

        def firing() -> dict[tuple[str, ...], dict[str, str]]:
            # Who is alive is left out: where a busy machine misses scrapes, seconds stand for minutes.
            return {
                tuple(labels.get(name, "") for name in ("alertname", "run_id", "rank", "phase")): labels
                for labels in (a["labels"] for a in prometheus.client.alerts() if a["state"] == "firing")
                if labels["alertname"] not in LIVENESS
            }

        until(lambda: set(firing()) >= expected, 90)
        found = firing()
        assert set(found) == expected
        stage = {labels["run_id"]: labels for labels in found.values()}["pipeline"]
        assert stage["role"] == "pp1"


class Hung:
    """Two ranks as they were found, at any later time."""

    def __init__(self, snapshots: list[bytes]) -> None:
        self._snapshots = snapshots
        self._found_ns = monotonic_ns()

    def scan(self, now_ns: int) -> Scan:
        scan = Scan()
        scan.ranks += [Found(read(snapshot, self._found_ns + now_ns), True) for snapshot in self._snapshots]
        return scan


def test_a_rank_stuck_before_a_collective_is_named(folder: Path, promtool: str, tmp_path: Path) -> None:
    before = states(folder, "fsdp")
    (folder / "fsdp" / "hang").touch()

    def enqueued() -> list[int]:
        return [max(known.enqueued for known in state.collectives) for state in states(folder, "fsdp")]

    def hung() -> bool:
        now = states(folder, "fsdp")
        # Numbers are written once a second: a wait of three is none of training, and they are up to date.
        waited = now[0].open is not None and monotonic_ns() - now[0].open.begin_ns > 3_000_000_000
        waits = now[0].open is not None and now[0].open.kind == "communication"
        return waits and waited and enqueued()[0] == enqueued()[1] + 1 and enqueued()[1] > 0

    until(hung, 60)
    victim, culprit = states(folder, "fsdp")
    assert victim.open is not None
    assert (victim.open.name, victim.open.kind) == ("all_gather", "communication")
    assert culprit.open is not None
    assert culprit.open.name == "forward"
    assert all(known.members == 2 and known.group_id == "dp-0" for known in victim.collectives)
    assert min(enqueued()) > max(known.enqueued for state in before for known in state.collectives) - 2

    simulation = Simulation()
    files = sorted((folder / f"argus-{os.getuid()}").glob("fsdp.*.seg"))
    node = simulation.node()
    node.source = Hung([file.read_bytes() for file in files])
    simulation.run(480)
    verdict = simulation.judge(promtool, tmp_path)
    assert {("ArgusHangSuspect", "critical", "1"), ("ArgusRunHung", "critical")} <= verdict.at(480, "rank")
    assert {tuple(accused) for alert, _, *accused in verdict.ever("rank") if alert == "ArgusHangSuspect"} == {
        ("1",)
    }
