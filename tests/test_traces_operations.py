"""Operation traces: real ones against their own columns, and hand-made ones."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from argus.traces import Accountant, Collective, load
from traces_support import case, write_csv

pq = pytest.importorskip("pyarrow.parquet")


def test_a_real_trace_comes_out_as_recorded() -> None:
    path = case("long-last-stage.parquet")
    raw = pq.read_table(path).to_pylist()
    expected: dict[tuple[int, int, str], float] = defaultdict(float)
    for item in raw:
        expected[item["step"], item["rank"], item["optype"]] += item["duration"]
    table, notes = load([str(path)])
    got: dict[tuple[int, int, str], float] = defaultdict(float)
    with table:
        assert not notes
        assert table.iterations == sorted({item["step"] for item in raw})
        accountant = Accountant(table)
        for number, rows in table:
            for rank in accountant.ranks(number, rows):
                for code, seconds in zip(rank.rows["phase"], rank.seconds, strict=True):
                    got[number, rank.rank, table.phases[code].name] += float(seconds)
                own = [i for i in raw if i["step"] == number and i["rank"] == rank.rank]
                extent = max(i["start_ts"] + i["duration"] for i in own) - min(i["start_ts"] for i in own)
                assert rank.wall == pytest.approx(extent, abs=1e-6)
        assert {r.role for r in table.ranks.values()} == {"pp0", "pp1", "pp2", "pp3"}
        # rank = 2 * stage + dp in this trace
        assert all((r.pp, r.dp) == divmod(number, 2) for number, r in table.ranks.items())
        assert {rank.run_id for rank in table.ranks.values()} == {"long-last-stage"}
    assert got == pytest.approx(expected)


def test_busy_is_the_union_of_compute_and_host() -> None:
    path = case("slow-worker.parquet")
    step, rank = 16, 0
    intervals = sorted(
        (item["start_ts"], item["start_ts"] + item["duration"])
        for item in pq.read_table(path).to_pylist()
        if item["step"] == step
        and item["rank"] == rank
        and item["optype"] in ("forward-compute", "backward-compute", "optimizer", "gc")
    )
    busy, reach = 0.0, 0.0
    for begin, end in intervals:
        busy += max(0.0, end - max(begin, reach))
        reach = max(reach, end)
    table, _ = load([str(path)])
    with table:
        [got] = [r for r in Accountant(table).ranks(step, table.read(step)) if r.rank == rank]
    assert got.busy == pytest.approx(busy, rel=1e-6)


def operation(rank: int, dp: int, stage: int, op: str, start: float) -> dict[str, object]:
    return {
        "dp_rank": dp, "stage": stage, "rank": rank, "step": 1, "optype": op, "start_ts": start,
        "duration": 1.0, "seq_id": 0, "mc": -1, "mb_id": -1, "gmc": -1,
    }  # fmt: skip


def test_communicators_by_place(tmp_path: Path) -> None:
    # PP 3, DP 2, rank = 10 * stage + dp; CSV this time.
    rows = [
        operation(10 * stage + dp, dp, stage, op, index)
        for stage in range(3)
        for dp in range(2)
        for index, op in enumerate(
            ("forward-send", "forward-recv", "backward-send", "backward-recv", "grads-reduce-scatter",
             "layernorm-grads-all-reduce", "embedding-grads-all-reduce", "optimizer")
        )
        if not (op == "embedding-grads-all-reduce" and stage == 1)
    ]  # fmt: skip
    table, _ = load([str(write_csv(tmp_path / "ops.csv", rows))])
    seen: dict[tuple[int, str], Collective] = {}
    with table:
        for item in table.read(1):
            if item["collective"] >= 0:
                key = (int(item["rank"]), table.phases[item["phase"]].name)
                seen[key] = table.collectives[item["collective"]]
    assert seen[0, "forward-send"] == Collective("forward-transfer", "pp", "pp-0-10", 2)
    assert seen[10, "forward-recv"] == seen[0, "forward-send"]  # both ends are one operation
    assert seen[10, "backward-send"] == Collective("backward-transfer", "pp", "pp-0-10", 2)
    assert seen[0, "backward-recv"] == seen[10, "backward-send"]
    # With interleaved chunks the last stage's next is the first.
    assert seen[21, "forward-send"] == Collective("forward-transfer", "pp", "pp-1-21", 2)
    assert seen[11, "grads-reduce-scatter"] == Collective("grads-reduce-scatter", "dp", "dp-10", 2)
    assert seen[1, "embedding-grads-all-reduce"].group_id == "pp-1-21"
    assert seen[21, "embedding-grads-all-reduce"].group_id == "pp-1-21"
    assert seen[20, "layernorm-grads-all-reduce"] == Collective("layernorm-grads-all-reduce", "tp", "tp-20")
    assert (0, "optimizer") not in seen


def test_unknown_operations_are_mixed_and_told(tmp_path: Path) -> None:
    rows = [operation(0, 0, 0, "forward-compute", 0), operation(0, 0, 0, "moe-dispatch", 1)]
    table, notes = load([str(write_csv(tmp_path / "ops.csv", rows))])
    with table:
        assert {phase.name: phase.kind for phase in table.phases} == {
            "forward-compute": "compute",
            "moe-dispatch": "mixed",
        }
    assert "moe-dispatch" in "\n".join(notes.lines())
