"""Who is slow in a simulated job, who is not, and when that is said (tests/simulation.py)."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from simulation import Simulation, Verdict, Work
from situations import accused, healthy, slowed


def test_healthy_jobs_accuse_nobody(promtool: str, tmp_path: Path) -> None:
    simulation = Simulation()
    simulation.job(healthy(0.1, seed=1), 8, per_node=2, run_id="a", roles=2)
    simulation.job(healthy(0.1, seed=2, scale=5), 8, per_node=4, run_id="b", roles=4)
    simulation.run(900)
    assert simulation.judge(promtool, tmp_path).ever() == set()


@pytest.mark.parametrize(
    ("phase", "factor", "alert"),
    [
        ("forward", 2.5, "ArgusComputeStraggler"),
        ("backward", 2.5, "ArgusComputeStraggler"),
        # Of an iteration of a second 20 ms; less than a tenth more would be a warning.
        ("data_loading", 10.0, "ArgusHostStall"),
    ],
)
def test_a_slow_rank_is_accused_in_its_phase_within_a_minute(
    promtool: str, tmp_path: Path, phase: str, factor: float, alert: str
) -> None:
    simulation = Simulation()
    simulation.job(slowed(healthy(), {5}, phase, factor, since=200), 8, per_node=2)
    simulation.run(700)
    verdict = simulation.judge(promtool, tmp_path)
    assert accused(verdict) == {(alert, "5", phase)}
    first = verdict.first(alert, "critical")
    assert first is not None
    assert 200 < first <= 260


def test_a_rank_that_recovers_is_released(promtool: str, tmp_path: Path) -> None:
    simulation = Simulation()
    simulation.job(slowed(healthy(), {1}, "forward", 3, since=100, until=300), 4)
    simulation.run(700)
    verdict = simulation.judge(promtool, tmp_path)
    assert accused(verdict) == {("ArgusComputeStraggler", "1", "forward")}
    assert verdict.at(300) != set()
    assert verdict.at(600) != set()
    assert verdict.at(645) == set()


def test_a_phase_too_short_to_matter_accuses_nobody(promtool: str, tmp_path: Path) -> None:
    simulation = Simulation()
    # 18 ms of an iteration of a second.
    simulation.job(slowed(healthy(), {2}, "data_loading", 1.9), 4)
    simulation.run(600)
    assert simulation.judge(promtool, tmp_path).ever() == set()


def test_ranks_that_differ_as_a_matter_of_course_accuse_nobody(promtool: str, tmp_path: Path) -> None:
    simulation = Simulation()
    forward = [0.20, 0.22, 0.25, 0.28, 0.30, 0.30, 0.33, 0.37]  # the last one 1.28 times the median
    steady = healthy()

    def work(rank: int, iteration: int, start: float) -> dict[str, float]:
        return {**steady(rank, iteration, start), "forward": forward[rank]}

    simulation.job(work, 8, per_node=2)
    simulation.run(600)
    assert simulation.judge(promtool, tmp_path).ever() == set()


def test_one_rank_alone_is_judged_by_its_own_past(promtool: str, tmp_path: Path) -> None:
    simulation = Simulation()
    simulation.job(slowed(healthy(scale=5), {0}, "backward", 1.6, since=2400), 1)
    simulation.run(3000)
    verdict = simulation.judge(promtool, tmp_path)
    assert accused(verdict) == {("ArgusIterationRegression",)}
    first = verdict.first("ArgusIterationRegression", "warning")
    assert first is not None
    assert 2400 < first < 2400 + 480


def test_two_ranks_per_group(promtool: str, tmp_path: Path) -> None:
    simulation = Simulation()
    simulation.job(slowed(healthy(), {2}, "backward", 2, since=100), 8, per_node=2, roles=4)
    simulation.run(500)
    verdict = simulation.judge(promtool, tmp_path)
    assert accused(verdict) == {("ArgusComputeStraggler", "2", "backward")}
    # Against the faster of the two: half way between them it would be 1.33 times, no more than a warning.
    assert 100 < (verdict.first("ArgusComputeStraggler", "critical") or 0) <= 160


def test_two_stragglers_among_eight(promtool: str, tmp_path: Path) -> None:
    simulation = Simulation()
    work = slowed(slowed(healthy(), {2}, "backward", 2, since=100), {7}, "forward", 3, since=100)
    simulation.job(slowed(work, {2}, "forward", 2, since=100), 8, per_node=2)
    simulation.run(500)
    assert accused(simulation.judge(promtool, tmp_path)) == {
        ("ArgusComputeStraggler", "2", "forward"),
        ("ArgusComputeStraggler", "2", "backward"),
        ("ArgusComputeStraggler", "7", "forward"),
    }


def test_a_straggler_from_the_first_iteration(promtool: str, tmp_path: Path) -> None:
    simulation = Simulation()
    simulation.job(slowed(healthy(), {3}, "forward", 2), 4)
    simulation.run(300)
    verdict = simulation.judge(promtool, tmp_path)
    assert accused(verdict) == {("ArgusComputeStraggler", "3", "forward")}
    assert (verdict.first("ArgusComputeStraggler", "critical") or 999) <= 60


def test_iterations_of_ninety_seconds(promtool: str, tmp_path: Path) -> None:
    simulation = Simulation()
    simulation.job(healthy(scale=90), 4, run_id="healthy")
    simulation.job(slowed(healthy(scale=90), {1}, "backward", 2, since=1000), 4, run_id="slow")
    simulation.run(2400)
    verdict = simulation.judge(promtool, tmp_path)
    assert verdict.ever("run_id", "rank", "phase") == {
        ("ArgusComputeStraggler", "critical", "slow", "1", "backward"),
        ("ArgusComputeStraggler", "warning", "slow", "1", "backward"),
    }
    first = verdict.first("ArgusComputeStraggler", "critical")
    assert first is not None
    # It begins with the iteration after 1000 s; the budget is four iterations (145 s now) and a minute.
    assert first <= 1000 + 90 + 4 * 145 + 60


@pytest.mark.parametrize("scrape_interval", [15.0, 30.0, 60.0])
def test_all_ranks_change_speed_together(promtool: str, tmp_path: Path, scrape_interval: float) -> None:
    simulation = Simulation(scrape_interval)

    def together(scale: float, period: float, ahead: float) -> Work:
        steady = healthy(scale=scale)

        def work(rank: int, iteration: int, start: float) -> dict[str, float]:
            factor = 2.5 if ((start + ahead) // period) % 2 else 1.0
            return {name: seconds * factor for name, seconds in steady(rank, iteration, start).items()}

        return work

    # The last one changes in step with the scrapes, so that some ranks look slow at every other one.
    aliased = (1, scrape_interval, 0.4 * scrape_interval)
    for number, (scale, period, ahead) in enumerate([(1, 211, 0), (5, 433, 0), (1, 149, 0), aliased]):
        simulation.job(together(scale, period, ahead), 5, run_id=f"r{number}")
    simulation.run(1300)

    def slow(verdict: Verdict) -> set[str]:
        symptoms = {"ArgusIterationJitter", "ArgusIterationRegression"}
        return {alert for alert, *_ in verdict.ever()} - symptoms

    assert slow(simulation.judge(promtool, tmp_path)) == set()
    # Those scraped first do look slow, at one evaluation: without `for:` somebody would be accused.
    hasty = {name: re.sub(r"\bfor: \S+", "for: 0s", text) for name, text in simulation.rules().items()}
    assert "ArgusComputeStraggler" in slow(simulation.judge(promtool, tmp_path, hasty))


@pytest.mark.parametrize("scale", [0.3, 10.0], ids=["many iterations in a window", "four"])
def test_random_rotating_imbalance(promtool: str, tmp_path: Path, scale: float) -> None:
    simulation = Simulation()
    steady, choice = healthy(scale=scale), random.Random(7)
    heavy: dict[int, int] = {}

    def work(rank: int, iteration: int, start: float) -> dict[str, float]:
        heavy.setdefault(iteration, choice.randrange(32))
        factor = 2.0 if heavy[iteration] == rank else 1.0
        return {name: seconds * factor for name, seconds in steady(rank, iteration, start).items()}

    simulation.job(work, 32, per_node=8)
    simulation.run(900)
    assert simulation.judge(promtool, tmp_path).ever("role") == {("ArgusWorkImbalance", "warning", "pp0")}


def test_a_stage_with_more_work(promtool: str, tmp_path: Path) -> None:
    simulation = Simulation()
    last = slowed(healthy(), {6, 7}, "backward", 1.6)
    simulation.job(last, 8, per_node=2, roles=4)
    simulation.run(600)
    assert simulation.judge(promtool, tmp_path).ever("role") == {("ArgusStageImbalance", "warning", "pp3")}


def test_eight_ranks_of_one_node_are_slow(promtool: str, tmp_path: Path) -> None:
    simulation = Simulation()
    simulation.job(slowed(healthy(0.05), set(range(8, 16)), "backward", 1.8, since=100), 32, per_node=8)
    simulation.run(900)
    expected = {("ArgusComputeStraggler", str(rank), "backward") for rank in range(8, 16)}
    assert accused(simulation.judge(promtool, tmp_path)) == expected


def test_common_stalls_are_jitter(promtool: str, tmp_path: Path) -> None:
    simulation = Simulation()
    steady, choice = healthy(), random.Random(3)
    stall: dict[int, float] = {}

    def work(rank: int, iteration: int, start: float) -> dict[str, float]:
        times = dict(steady(rank, iteration, start))
        if iteration % 6 == 0:  # at least one in each window of ten seconds
            stall.setdefault(iteration, choice.uniform(1, 2))
            times["backward"] += stall[iteration]
        return times

    simulation.job(work, 8, per_node=2)
    simulation.run(1200)
    assert simulation.judge(promtool, tmp_path).ever() == {("ArgusIterationJitter", "warning")}


def test_one_long_iteration_is_nothing(promtool: str, tmp_path: Path) -> None:
    simulation = Simulation()
    steady = healthy(scale=90)  # it stays in the window of four for six minutes

    def work(rank: int, iteration: int, start: float) -> dict[str, float]:
        times = dict(steady(rank, iteration, start))
        times["forward"] *= 8 if iteration == 12 else 1
        return times

    simulation.job(work, 4)
    simulation.run(2400)
    assert simulation.judge(promtool, tmp_path).ever() == set()


def test_one_rank_with_long_iterations_now_and_then_is_no_uneven_work(promtool: str, tmp_path: Path) -> None:
    simulation = Simulation()
    steady = healthy()

    def work(rank: int, iteration: int, start: float) -> dict[str, float]:
        times = dict(steady(rank, iteration, start))
        times["forward"] *= 3 if rank == 3 and iteration % 10 == 0 else 1
        return times

    simulation.job(work, 8, per_node=2)
    simulation.run(1200)
    assert simulation.judge(promtool, tmp_path).ever() == {("ArgusIterationJitter", "warning")}
