"""Ranks, nodes and runs that end, die, restart or hang in a simulated job: who is told of, and who is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulation import Simulation, ns
from situations import accused, healthy, slowed


@pytest.mark.parametrize("elsewhere", [False, True], ids=["on this node", "on another"])
def test_a_rank_restarts(promtool: str, tmp_path: Path, elsewhere: bool) -> None:
    simulation = Simulation()
    job = simulation.job(slowed(healthy(), {2}, "forward", 2, since=500), 4)
    simulation.at(200, lambda: job.ranks[2].end(simulation.now, "failed"))
    simulation.at(290, lambda: job.restart(2, simulation.node() if elsewhere else None))
    simulation.run(900)
    verdict = simulation.judge(promtool, tmp_path)
    # Not down, not missing; and slow later on, known to two nodes.
    assert accused(verdict) == {("ArgusComputeStraggler", "2", "forward")}


def test_a_rank_dies_and_stays_away(promtool: str, tmp_path: Path) -> None:
    simulation = Simulation()
    job = simulation.job(healthy(), 4)
    simulation.at(200, lambda: job.ranks[2].end(simulation.now, "failed"))
    simulation.run(700)
    verdict = simulation.judge(promtool, tmp_path)
    # The others hang in their collective, which is the symptom.
    assert accused(verdict) == {("ArgusRankDown", "2"), ("ArgusRunHung",)}
    assert 200 + 120 < (verdict.first("ArgusRankDown", "critical") or 0) <= 200 + 120 + 30


def test_all_ranks_restart(promtool: str, tmp_path: Path) -> None:
    simulation = Simulation()
    job = simulation.job(healthy(), 8, per_node=2)

    def crash() -> None:
        for rank in job.ranks:
            rank.end(simulation.now, "failed")

    simulation.at(200, crash)
    simulation.at(280, job.restart_all)
    simulation.run(1200)
    assert simulation.judge(promtool, tmp_path).ever() == set()


def test_a_run_ends_well(promtool: str, tmp_path: Path) -> None:
    simulation = Simulation()
    job = simulation.job(healthy(), 8, per_node=2)

    def end(ranks: range) -> None:
        job.stopped = True
        for rank in ranks:
            job.ranks[rank].end(simulation.now, "ended")

    simulation.at(300, lambda: end(range(3)))
    simulation.at(340, lambda: end(range(3, 8)))
    simulation.run(300 + 4500)  # past the hour for which the run's size is remembered
    assert simulation.judge(promtool, tmp_path).ever() == set()


def test_a_run_ends_well_and_its_exporters_with_it(promtool: str, tmp_path: Path) -> None:
    simulation = Simulation()
    job = simulation.job(healthy(), 4, per_node=2)
    simulation.at(300, job.end)
    for node in simulation.nodes:  # sidecars: each is scraped once more, then its pod has gone
        simulation.at(316, lambda node=node: simulation.remove(node))  # type: ignore[misc]
    simulation.run(300 + 4500)
    verdict = simulation.judge(promtool, tmp_path)
    assert verdict.ever() == set()


def test_sidecars_that_tell_nothing_of_the_end_look_like_lost_ranks(promtool: str, tmp_path: Path) -> None:
    """Why an exporter lingers (``--web.linger``)."""
    simulation = Simulation()
    job = simulation.job(healthy(), 4, per_node=2)

    def gone() -> None:
        job.end()
        for node in simulation.nodes:
            simulation.remove(node)

    simulation.at(300, gone)
    simulation.run(700)
    assert accused(simulation.judge(promtool, tmp_path)) == {("ArgusRanksMissing",)}


def test_all_ranks_are_gone_at_once_with_their_nodes(promtool: str, tmp_path: Path) -> None:
    simulation = Simulation()
    job = simulation.job(healthy(), 4, per_node=2)

    def power_cut() -> None:
        job.stopped = True
        for node in simulation.nodes:
            node.reachable = False

    simulation.at(300, power_cut)
    simulation.run(900)
    verdict = simulation.judge(promtool, tmp_path)
    assert accused(verdict) == {("ArgusRanksMissing",), ("ArgusExporterDown",)}
    assert 300 + 180 < (verdict.first("ArgusRanksMissing", "critical") or 0) <= 300 + 180 + 30
    assert {key[1:] for key in verdict.at(900, "instance") if key[0] == "ArgusExporterDown"} == {
        ("warning", "n0:9733"),
        ("warning", "n1:9733"),
    }


def test_all_ranks_die_at_once_and_their_nodes_stay(promtool: str, tmp_path: Path) -> None:
    simulation = Simulation()
    job = simulation.job(healthy(), 4, per_node=2)
    simulation.at(300, lambda: job.end("failed"))
    forgotten = 300 + 600 + 3600  # by exporters after ten minutes, by the rules an hour later
    simulation.run(forgotten + 180)
    verdict = simulation.judge(promtool, tmp_path)
    # One message, not one for each rank.
    assert accused(verdict) == {("ArgusRanksMissing",)}
    assert 300 + 180 < (verdict.first("ArgusRanksMissing", "critical") or 0) <= 300 + 180 + 30
    assert verdict.at(forgotten - 60) != set()
    assert verdict.at(forgotten + 180) == set()


def test_failed_scrapes_change_nothing(promtool: str, tmp_path: Path) -> None:
    simulation = Simulation()
    job = simulation.job(slowed(healthy(), {2}, "forward", 2, since=100), 4)
    simulation.job(slowed(healthy(), {0}, "forward", 1.35), 4, run_id="mild")
    for number, node in enumerate(simulation.nodes):
        node.lost_scrapes = {15 + number, 30, 45 + 2 * number}
    simulation.run(900)
    verdict = simulation.judge(promtool, tmp_path)
    assert job.number > 100
    assert verdict.ever("run_id", "rank") == {
        ("ArgusComputeStraggler", "critical", "r", "2"),
        ("ArgusComputeStraggler", "warning", "r", "2"),
        ("ArgusComputeStraggler", "warning", "mild", "0"),
    }
    # Once it fires it goes on, and the warning comes in its time.
    critical = [
        t
        for t in verdict.firing
        if ("ArgusComputeStraggler", "critical", "r", "2") in verdict.at(t, "run_id", "rank")
    ]
    assert max(critical) - min(critical) == 15 * (len(critical) - 1)
    assert max(critical) == 900
    # Not before it has been compared for five minutes.
    assert 300 <= (verdict.first("ArgusComputeStraggler", "warning") or 0) <= 60 + 360


def test_an_exporter_stops_while_its_ranks_train_on(promtool: str, tmp_path: Path) -> None:
    simulation = Simulation()
    simulation.job(healthy(), 8, per_node=2)

    def stop() -> None:
        simulation.nodes[1].reachable = False

    simulation.at(300, stop)
    simulation.run(1200)
    assert simulation.judge(promtool, tmp_path).ever("instance", "run_id") == {
        ("ArgusExporterDown", "warning", "n1:9733", "r")
    }


def test_a_hang_accuses_the_rank_that_sits_in_compute(promtool: str, tmp_path: Path) -> None:
    simulation = Simulation()
    job = simulation.job(healthy(), 8, per_node=2)
    simulation.at(300, lambda: job.hang({3: "forward", 6: "optimizer"}))
    simulation.run(700)
    verdict = simulation.judge(promtool, tmp_path)
    assert accused(verdict) == {("ArgusRunHung",), ("ArgusHangSuspect", "3")}
    assert (verdict.first("ArgusHangSuspect", "critical") or 999) <= 300 + 120 + 60
    assert (verdict.first("ArgusRunHung", "critical") or 999) <= 300 + 120 + 90


def test_a_hang_that_nobody_can_tell(promtool: str, tmp_path: Path) -> None:
    simulation = Simulation()
    job = simulation.job(healthy(), 8, per_node=2)
    simulation.at(300, lambda: job.hang({}))
    simulation.run(600)
    assert accused(simulation.judge(promtool, tmp_path)) == {("ArgusRunHung",)}


def test_a_declared_evaluation_is_no_hang(promtool: str, tmp_path: Path) -> None:
    simulation = Simulation()
    job = simulation.job(healthy(), 4)

    def evaluate(begin: bool) -> None:
        job.stopped = begin
        for rank in job.ranks:
            rank.segment.pause("evaluation" if begin else None, ns(simulation.now))
        if not begin:
            job.resume()

    simulation.at(300, lambda: evaluate(True))
    simulation.at(1500, lambda: evaluate(False))
    simulation.run(1800)
    assert simulation.judge(promtool, tmp_path).ever() == set()


def test_two_jobs_under_one_run_id_are_told_and_nobody_is_accused(promtool: str, tmp_path: Path) -> None:
    simulation = Simulation()
    simulation.job(healthy(), 8, per_node=4)
    # Its ranks are peers of the other's, and one of them is slow.
    simulation.job(slowed(healthy(seed=2), {2}, "forward", 2), 8, per_node=4)
    simulation.run(900)
    assert simulation.judge(promtool, tmp_path).ever("rank", "source") == {
        ("ArgusTracerDegraded", "warning", "identity")
    }
