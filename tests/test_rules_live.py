"""Segments on disk, the exporter's own process, the shipped rules: to a firing alert, on every Prometheus."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from argus import _native, ruleset
from argus.prometheus import Prometheus
from exporter_support import until

SCRAPE_S = 0.5
"""Stands for the 15 s of the rules as they are written; every duration in them shrinks likewise."""

CONFIG = """
global: {{scrape_interval: {scrape}ms, evaluation_interval: {scrape}ms}}
rule_files: [rules/*.yml]
scrape_configs: [{{job_name: argus, static_configs: [{{targets: ["{target}"]}}]}}]
"""
MILLISECOND = 1_000_000
FORWARD_MS = {0: 100, 1: 100, 2: 250, 3: 102}
"""By rank; 2 is the slow one."""


@pytest.fixture(scope="module")
def segments(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Four ranks that train, in files; an iteration each 50 ms of real time."""
    base = tmp_path_factory.mktemp("segments")
    folder = base / f"argus-{os.getuid()}"
    folder.mkdir(mode=0o750)
    stop = threading.Event()

    def train() -> None:
        ranks = [
            _native.Segment(
                str(folder / f"live.{rank}.0000000{rank}.seg"),
                run_id="live", rank=rank, node=f"node{rank // 2}", world_size=len(FORWARD_MS), attempt=0,
            )
            for rank in FORWARD_MS
        ]  # fmt: skip
        number = 0
        while not stop.is_set():
            for rank, segment in enumerate(ranks):
                own = FORWARD_MS[rank]
                segment.observe_phase(segment.phase("forward", "compute"), own * MILLISECOND)
                segment.observe_phase(segment.phase("grad_sync", "communication"), (260 - own) * MILLISECOND)
                segment.end_iteration(number, _native.monotonic_ns(), 260 * MILLISECOND)
            number += 1
            stop.wait(0.05)
        for segment in ranks:
            segment.close("ended")

    thread = threading.Thread(target=train)
    thread.start()
    yield base
    stop.set()
    thread.join()


@pytest.fixture(scope="module")
def target(segments: Path) -> Iterator[str]:
    """Address of an ``argus exporter`` that serves them."""
    command = [sys.executable, "-m", "argus.cli", "exporter", "--segments.directory", str(segments)]
    command += ["--web.listen-address", "127.0.0.1:0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        found = next(
            filter(None, (re.search(r"listening on http://(\S+)/", line) for line in process.stderr))
        )
        yield found[1]
        process.kill()


def test_the_shipped_rules_name_the_slow_rank(target: str, each_prometheus: Path) -> None:
    rules = ruleset.render(15.0, SCRAPE_S / 15.0)
    config = CONFIG.format(scrape=round(SCRAPE_S * 1000), target=target)
    with Prometheus(config, rules, binary=each_prometheus) as prometheus:

        def firing() -> list[dict[str, Any]]:
            return [alert for alert in prometheus.client.alerts() if alert["state"] == "firing"]

        # Lost time is recorded in another group, which may come after this one the first time.
        until(lambda: any("GPU-hours" in alert["annotations"]["description"] for alert in firing()), 60)
        accused = [(alert["labels"].pop("severity"), alert["labels"], alert) for alert in firing()]
        assert {severity for severity, _, _ in accused} <= {"critical", "warning"}
        for _, labels, _ in accused:
            assert labels == {
                "alertname": "ArgusComputeStraggler",
                "run_id": "live",
                "role": "pp0",
                "rank": "2",
                "phase": "forward",
            }
        [alert] = [alert for severity, _, alert in accused if severity == "critical"]
        assert alert["annotations"]["summary"] == (
            "Rank 2 of run live is slow in phase forward: 2.48 times its peers"  # the median is 101 ms
        )
        description = alert["annotations"]["description"]
        assert description.startswith("Rank 2 on node node1 (role pp0) needs 2.48 times as long")
        assert "250ms against 101ms" in description
        assert re.search(r"compared with [^.]*\b4\b[^.]*\.", description)
        # (250 - 101) of 260 ms, of four ranks
        assert "The run loses about 2.3 GPU-hours per hour." in description
        assert alert["annotations"]["runbook_url"].endswith("/ArgusComputeStraggler.md")

        groups = prometheus.client.rules()
        expected = [group["name"] for text in rules.values() for group in yaml.safe_load(text)["groups"]]
        assert sorted(group["name"] for group in groups) == sorted(expected)
        failed = {
            rule["name"]: rule["lastError"]
            for group in groups
            for rule in group["rules"]
            if rule.get("lastError")
        }
        assert failed == {}
