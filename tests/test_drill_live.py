"""Drills in real time: served by `argus drill`, scraped by a real Prometheus with the shipped rules."""

from __future__ import annotations

import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from argus import ruleset
from argus.prometheus import Prometheus
from drill_support import served
from exporter_support import until

SPEED = 15
"""The rules' 15 s become 1 s."""

CONFIG = """
global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}
rule_files: [rules/*.yml]
scrape_configs: [{{job_name: argus, static_configs: [{{targets: ["{target}"]}}]}}]
"""


def test_a_drill_is_served_like_a_live_job() -> None:
    sizes = ["--dp", "8", "--pp", "2", "--ep", "2", "--iteration", "0.05"]
    with served("link-ep", *sizes) as (address, said):
        # Lanes 4 and 5 of stage 0 are the group of the rank in the middle.
        assert any("must be accused: ArgusLinkDegraded{group=ep, group_id=ep-4}" in line for line in said)
        page = ""

        def complete() -> bool:
            nonlocal page
            page = urllib.request.urlopen(f"http://{address}/metrics", timeout=10).read().decode()
            return "argus_window_collective_seconds" in page

        until(complete, 60)
    # Rank 9 is stage 1, dp 1; its group is the first of its stage.
    assert 'rank="9",group="ep",group_id="ep-8"} 2' in page
    assert 'argus_rank_info{run_id="drill",role="pp1",rank="9",node="node1"' in page


@pytest.mark.parametrize(
    ("arguments", "labels"),
    [
        (
            ["masked-straggler", "--dp", "8", "--pp", "2", "--ep", "4"],
            {"alertname": "ArgusComputeStraggler", "rank": "14", "role": "pp1", "phase": "mlp"},
        ),
        (
            ["link-ep", "--dp", "8", "--pp", "2", "--ep", "2", "--factor", "9"],
            {"alertname": "ArgusLinkDegraded", "op": "all_to_all", "group": "ep", "group_id": "ep-4"},
        ),
    ],
    ids=["masked straggler", "slow link"],
)
def test_a_drill_is_diagnosed(prometheus_binary: Path, arguments: list[str], labels: dict[str, str]) -> None:
    rules = ruleset.render(time_scale=1 / SPEED)
    with (
        served(*arguments, "--speed", str(SPEED), "--since", "60") as (address, _),
        Prometheus(CONFIG.format(target=address), rules, binary=prometheus_binary) as prometheus,
    ):

        def accused() -> list[dict[str, Any]]:
            return [a["labels"] for a in prometheus.client.alerts() if a["state"] == "firing"]

        until(lambda: accused() != [], 60)
        # And nobody else, for a while.
        end = time.monotonic() + 4
        while time.monotonic() < end:
            for alert in accused():
                alert.pop("severity")
                assert alert == {"run_id": "drill", **labels}
            time.sleep(0.5)
