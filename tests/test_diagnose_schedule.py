"""The replay of a schedule, and the slowdown, against cases worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from argus.diagnose.schedule import Iteration
from argus.diagnose.slowdown import Culprits, estimate
from argus.traces import Accountant, Table, load
from traces_support import case, row, write_csv


def table(folder: Path, rows: list[dict[str, object]]) -> Table:
    return load([str(write_csv(folder / "trace.csv", rows))])[0]


def replay(trace: Table, number: int, factors: dict[tuple[int, str], float]) -> float:
    iteration = Iteration(trace, list(Accountant(trace).ranks(number, trace.read(number))))
    return iteration.seconds(lambda rank, phase: factors.get((rank, trace.phases[phase].name), 1.0))


def two_ranks(slow: float) -> list[dict[str, object]]:
    """Forward, an all-reduce whose transfer takes 0.5 s, optimizer 1 s; rank 1's forward takes ``slow`` s."""
    rows = []
    for rank, forward in ((0, 2.0), (1, slow)):
        wait = max(2.0, slow) - forward
        rows += [
            row(rank, 0, "forward", 0, forward, kind="compute"),
            row(rank, 0, "all_reduce", forward, wait + 0.5, kind="communication", op="all_reduce",
                group="dp", group_id="dp-0", members=2),
            row(rank, 0, "optimizer", forward + wait + 0.5, 1, kind="compute"),
        ]  # fmt: skip
    return rows


def test_a_barrier(tmp_path: Path) -> None:
    with table(tmp_path, two_ranks(5.0)) as trace:
        assert replay(trace, 0, {}) == pytest.approx(5 + 0.5 + 1)
        assert replay(trace, 0, {(1, "forward"): 0.4}) == pytest.approx(2 + 0.5 + 1)
        assert replay(trace, 0, {(1, "forward"): 0.2}) == pytest.approx(2 + 0.5 + 1)  # now rank 0 is the last
        slowdown = estimate(trace, Culprits(frozenset({(1, "forward")})), 0)
        assert slowdown == pytest.approx(6.5 / 3.5)


def test_nobody_accused_has_no_slowdown(tmp_path: Path) -> None:
    with table(tmp_path, two_ranks(5.0)) as trace:
        assert estimate(trace, Culprits(), 0) is None


def test_a_pipeline_of_two_stages(tmp_path: Path) -> None:
    """Stage 0 (1 s) sends three micro-batches to stage 1 (3 s), which holds it up; a transfer takes 0.1 s.

    As recorded stage 1 goes without a pause: 1 + 3 * 3.1 = 10.3 s.  With even
    stages of (1 + 3) / 2 = 2 s: 2 + 3 * 2.1 = 8.3 s.
    """
    shared = {"op": "transfer", "group": "pp", "group_id": "pp-0-1", "members": 2, "kind": "communication"}
    rows = []
    sent = received = 0.0  # when stage 0 and stage 1 are free
    for end in (1.1, 4.2, 7.3):  # of the transfers
        rows += [
            row(0, 0, "forward", sent, 1.0, kind="compute", role="pp0"),
            row(0, 0, "send", sent + 1.0, end - sent - 1.0, role="pp0", **shared),
            row(1, 0, "recv", received, end - received, role="pp1", **shared),
            row(1, 0, "forward", end, 3.0, kind="compute", role="pp1"),
        ]
        sent, received = end, end + 3.0
    with table(tmp_path, rows) as trace:
        assert replay(trace, 0, {}) == pytest.approx(10.3)
        assert estimate(trace, Culprits(uneven_stages=True), 0) == pytest.approx(10.3 / 8.3)


def test_occurrences_that_do_not_match_do_not_stop_it(tmp_path: Path) -> None:
    rows = two_ranks(3.0)
    rows.append(
        row(0, 0, "all_reduce", 9.0, 0.5, kind="communication", op="all_reduce", group="dp",
            group_id="dp-0", members=2)
    )  # fmt: skip
    with table(tmp_path, rows) as trace:
        assert replay(trace, 0, {}) == pytest.approx(3 + 0.5 + 1 + 0.5)


def test_a_mixed_phase_can_wait(tmp_path: Path) -> None:
    """Two ranks in a mixed phase that ends together: the quicker one took 4 s of which 3 s were waiting."""
    rows = [
        row(0, 0, "forward", 0, 1, kind="compute"),
        row(0, 0, "step", 1, 4, kind="mixed"),
        row(1, 0, "forward", 0, 4, kind="compute"),
        row(1, 0, "step", 4, 1, kind="mixed"),
    ]
    with table(tmp_path, rows) as trace:
        assert replay(trace, 0, {(1, "forward"): 0.25}) == pytest.approx(2.0)


@pytest.mark.parametrize("name", ["slow-worker", "long-last-stage"])
def test_as_recorded_the_replay_takes_as_long_as_the_job_did(name: str) -> None:
    pytest.importorskip("pyarrow")
    trace, _ = load([str(case(f"{name}.parquet"))])
    with trace:
        for number in trace.iterations[::8]:
            rows = trace.read(number)
            took = float((rows["start"] + rows["duration"]).max() - rows["start"].min())
            assert replay(trace, number, {}) == pytest.approx(took, rel=0.04)
