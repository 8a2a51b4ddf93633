"""Lightning, as documented: two ranks, of which one is slow, and is accused."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from argus import ruleset
from argus.prometheus import Prometheus
from exporter_support import until
from ranks_support import ranks as running_ranks

pytest.importorskip("torch", reason="torch is not installed (pip install argus-gpu[torch])")

from integrations_support import CHECKPOINT, EVALUATION, check_phases, results

JOB = Path(__file__).with_name("integrations_lightning_job.py")
SCRAPE_S = 0.5
"""Stands for the rules' 15 s; every duration in them shrinks likewise."""
CONFIG = """
global: {{scrape_interval: {scrape}ms, evaluation_interval: {scrape}ms}}
rule_files: [rules/*.yml]
scrape_configs: [{{job_name: argus, static_configs: [{{targets: ["{target}"]}}]}}]
"""
Accusation = tuple[str, ...]


def accusations(target: str, binary: Path) -> set[Accusation]:
    """What fires about a running job, once anything does."""
    config = CONFIG.format(scrape=round(SCRAPE_S * 1000), target=target)
    with Prometheus(config, ruleset.render(15.0, SCRAPE_S / 15.0), binary=binary) as prometheus:

        def firing() -> set[Accusation]:
            return {
                tuple(alert["labels"].get(name, "") for name in ("alertname", "run_id", "rank", "phase"))
                for alert in prometheus.client.alerts()
                if alert["state"] == "firing"
            }

        until(lambda: bool(firing()), 90)
        return firing()


class Job:
    """What came of the job."""

    def __init__(self, folder: Path, accused: set[Accusation] | None) -> None:
        self.ranks = results(folder, "ddp")
        self.alone = json.loads((folder / "alone.json").read_text())
        self.accused = accused


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory, prometheus_binary: Path) -> Iterator[Job]:
    if find_spec("lightning") is None:
        pytest.skip("lightning is not installed")
    folder = tmp_path_factory.mktemp("lightning")
    command = [sys.executable, "-m", "argus.cli", "exporter", "--segments.directory", str(folder)]
    command += ["--web.listen-address", "127.0.0.1:0"]
    with running_ranks([str(JOB), str(folder)], ARGUS_DIR=str(folder), ARGUS_RUN_ID="lightning") as running:
        measured = [folder / f"ddp.{rank}.json" for rank in (0, 1)]
        until(lambda: running.ended or all(path.exists() for path in measured), 150)
        assert not running.ended, running.log[-8000:]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as exporter:
            assert exporter.stderr is not None
            lines = (re.search(r"listening on http://(\S+)/", line) for line in exporter.stderr)
            found = next(filter(None, lines))
            try:
                accused = accusations(found[1], prometheus_binary)
            finally:
                exporter.kill()
        (folder / "stop").touch()
        running.join()
        yield Job(folder, accused)


def test_the_slow_rank_is_accused(job: Job) -> None:
    assert job.accused == {("ArgusComputeStraggler", "lightning", "1", "forward")}


def counts(rank: dict[str, Any]) -> list[int]:
    return [
        rank["counts"][phase] for phase in ("data_loading", "forward", "backward", "grad_sync", "optimizer")
    ]


def test_automatic_optimization(job: Job) -> None:
    found = [rank["automatic"] for rank in job.ranks]
    check_phases(found, forwards=2)
    for rank in found:
        assert (rank["active"], rank["reason"]) == (True, "")
        # 32 rows in batches of 2 on 2 ranks, 2 batches a step, 2 epochs.
        assert rank["iterations"] == 8
        assert counts(rank) == [16, 16, 16, 8, 8]
        assert rank["pauses"]["evaluation"] >= 5 * EVALUATION, "two in each epoch, and the sanity check"
        assert rank["pauses"]["checkpoint"] >= CHECKPOINT


def test_manual_optimization(job: Job) -> None:
    found = [rank["manual"] for rank in job.ranks]
    check_phases(found, forwards=2)
    for rank in found:
        assert (rank["active"], rank["reason"]) == (True, "")
        # Two forward and backward passes and two steps in each of 8 batches, one of each training_step.
        assert rank["iterations"] == 8
        assert counts(rank) == [8, 8, 16, 16, 16]


def test_resuming(job: Job) -> None:
    for rank in job.ranks:
        # From step 2 to step 8, in the middle of an epoch.
        assert rank["resumed"]["steps"] == 8
        assert rank["resumed"]["iterations"] == 6


def test_gradients_that_are_not_seen_accuse_nobody(job: Job) -> None:
    for rank in job.ranks:
        assert not rank["unseen"]["active"]
        assert "manual_backward" in rank["unseen"]["reason"]


def test_lightning_is_as_it_was(job: Job) -> None:
    for rank in job.ranks:
        assert rank["caught"] == []
        assert all(not key.startswith("ArgusCallback") for key in rank["stateful"])
        assert rank["frames"][0] == rank["frames"][1] > 0


def test_a_process_alone(job: Job) -> None:
    assert (job.alone["active"], job.alone["reason"]) == (True, "")
    # Nothing wraps the module: 32 rows in batches of 2.
    assert job.alone["iterations"] == 16
    assert [job.alone["counts"][phase] for phase in ("forward", "backward", "optimizer")] == [16, 16, 16]
    assert "grad_sync" not in job.alone["counts"]
