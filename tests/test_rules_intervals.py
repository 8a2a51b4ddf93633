"""Scrapes every 5, 30 and 60 s (15 s: everywhere else): faults are told in time, and no others."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.drills.batch import Run, Verdict, play

from argus.drill.topology import Topology
from argus.drill.truth import Claim
from simulation import Simulation
from situations import healthy, slowed

INTERVALS = (5.0, 30.0, 60.0)
SMALL = Topology(dp=4, pp=2, per_node=2)
RUNS = {
    "healthy": Run("healthy", SMALL),
    "straggler": Run("straggler", SMALL),
    "mild": Run("straggler", SMALL, factor=1.35, seed=3),
    "link": Run("link-ep", Topology(dp=16, pp=2, ep=4)),
    "dead": Run("rank-down", SMALL),
    "restart": Run("restart", SMALL),
}
"""Runs of one Prometheus; faults begin after 120 s."""
BIG = {"link", "restart"}
"""Left out at 5 s, where there is much to evaluate."""


@pytest.fixture(scope="module", params=INTERVALS, ids=lambda seconds: f"{seconds:g} s")
def told(
    request: pytest.FixtureRequest, promtool: str, tmp_path_factory: pytest.TempPathFactory
) -> tuple[float, dict[str, Verdict]]:
    folder, interval = tmp_path_factory.mktemp("intervals"), request.param
    runs = {run_id: run for run_id, run in RUNS.items() if interval > 5 or run_id not in BIG}
    return interval, play(runs, 660.0, promtool=promtool, folder=folder, interval=interval)


def test_runs_side_by_side_are_judged_right(told: tuple[float, dict[str, Verdict]]) -> None:
    _, verdicts = told
    assert [f"{run_id}: {v.judgement}" for run_id, v in verdicts.items() if not v.judgement.right] == []


def test_what_is_critical_is_told_in_time(told: tuple[float, dict[str, Verdict]]) -> None:
    """Within a minute, and within four scrapes where these are longer (64 iterations of 2 s at most wait)."""
    interval, verdicts = told
    first = verdicts["straggler"].first(Claim("ArgusComputeStraggler"), "critical")
    assert first is not None
    assert 120 < first <= 120 + max(60.0, 4 * interval)


@pytest.mark.parametrize("interval", INTERVALS)
def test_a_run_ends_while_its_rank_is_slow(promtool: str, tmp_path: Path, interval: float) -> None:
    simulation = Simulation(interval)
    slow = simulation.job(slowed(healthy(scale=3), {2}, "forward", 2), 4, per_node=4, run_id="slow")
    simulation.job(healthy(scale=3), 2, per_node=2, run_id="fine")
    end = 300.0
    simulation.at(end, slow.end)
    simulation.run(end + 480.0)
    verdict = simulation.judge(promtool, tmp_path)
    assert {key for key in verdict.ever("run_id", "rank") if key[1] == "critical"} == {
        ("ArgusComputeStraggler", "critical", "slow", "2")
    }
    assert {key[:3] for key in verdict.ever("run_id")} <= {
        ("ArgusComputeStraggler", severity, "slow") for severity in ("critical", "warning")
    }
    # It goes on without a gap until five minutes after the last scrape that saw the run.
    fired = [t for t, alerts in verdict.firing.items() if alerts]
    assert max(fired) - min(fired) == interval * (len(fired) - 1)
    assert end + 300 - interval <= max(fired) <= end + 300 + 2 * interval
