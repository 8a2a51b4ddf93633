"""Kineto files: real ones against a slow calculation of their own, and hand-made ones."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from argus.traces import Accountant, Collective, RankIteration, Table, TraceError, load
from traces_support import CASES, case

Event = dict[str, Any]


def events_of(path: Path) -> list[Event]:
    with gzip.open(path) as file:
        return [event for event in json.load(file)["traceEvents"] if event.get("ph") == "X"]


def covered(intervals: list[tuple[float, float]]) -> float:
    """Length of a union, by sweeping over all its borders."""
    borders = sorted([(a, 1) for a, b in intervals if b > a] + [(b, -1) for a, b in intervals if b > a])
    total, depth, since = 0.0, 0, 0.0
    for at, step in borders:
        if depth == 0:
            since = at
        depth += step
        if depth == 0:
            total += at - since
    return total


def read(path: Path, iteration: int, rank: int) -> tuple[RankIteration, Table]:
    table, notes = load([str(path)])
    with table:
        assert not notes
        found = [r for r in Accountant(table).ranks(iteration, table.read(iteration)) if r.rank == rank]
        return found[0], table


def seconds(rank: RankIteration, table: Table) -> dict[str, float]:
    result: dict[str, float] = defaultdict(float)
    for code, value in zip(rank.rows["phase"], rank.seconds, strict=True):
        result[table.phases[code].name] += float(value)
    return dict(result)


def expected_phase(launch: Event, events: list[Event]) -> str:
    """The smallest marker around a launch on its thread; the engine's threads run backward."""
    marks = {
        "## forward ##": "forward",
        "DistributedDataParallel.forward": "forward",
        "## backward ##": "backward",
        "## optimizer ##": "optimizer",
        "Optimizer.step#Shampoo.step": "optimizer",
        "Optimizer.step#EMAOptimizer.step": "optimizer",
    }
    around = [
        (event["dur"], marks[event["name"]])
        for event in events
        if event["name"] in marks
        and event["cat"] == "user_annotation"
        and event["tid"] == launch["tid"]
        and event["ts"] <= launch["ts"] < event["ts"] + event["dur"]
    ]
    if around:
        return min(around)[1]
    main = next(event["tid"] for event in events if event["name"].startswith("ProfilerStep#"))
    return "other" if launch["tid"] == main else "backward"


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("iteration", [551, 552])
def test_device_seconds_of_the_real_pair(rank: int, iteration: int) -> None:
    events = events_of(case(f"kineto/rank-{rank}.json.gz"))
    [step] = [event for event in events if event["name"] == f"ProfilerStep#{iteration}"]
    launches = {e["args"]["correlation"]: e for e in events if e["cat"] == "cuda_runtime"}
    work: dict[str, list[tuple[float, float]]] = defaultdict(list)
    nccl: dict[str, list[float]] = defaultdict(list)
    for event in events:
        if event["cat"] not in ("kernel", "gpu_memcpy", "gpu_memset"):
            continue
        launch = launches[event["args"]["correlation"]]
        if not step["ts"] <= launch["ts"] < step["ts"] + step["dur"]:
            continue
        if event["name"].startswith("nccl"):
            [mark] = [
                e["name"]
                for e in events
                if e["name"].startswith("nccl:")
                and e["tid"] == launch["tid"]
                and e["ts"] <= launch["ts"] < e["ts"] + e["dur"]
            ]
            nccl[mark].append(event["dur"] / 1e6)
        else:
            work[expected_phase(launch, events)].append((event["ts"], event["ts"] + event["dur"]))

    got, table = read(CASES / "kineto", iteration, rank)
    phases = seconds(got, table)
    assert got.wall == pytest.approx(step["dur"] / 1e6)
    for name in ("forward", "backward", "optimizer", "other"):
        assert phases[name] == pytest.approx(covered(work[name]) / 1e6), name
    loading = [e["dur"] for e in events if e["name"] == "## data_load ##" and
               step["ts"] <= e["ts"] < step["ts"] + step["dur"]]  # fmt: skip
    assert phases["data_loading"] == pytest.approx(sum(loading) / 1e6)

    ops = {"nccl:all_to_all": "all_to_all", "nccl:all_reduce": "all_reduce",
           "nccl:_all_gather_base": "all_gather"}  # fmt: skip
    assert set(nccl) == set(ops)
    for mark, durations in nccl.items():
        occurrences = [
            float(row["duration"])
            for row in got.rows
            if row["collective"] >= 0 and table.collectives[row["collective"]].op == ops[mark]
        ]
        assert sorted(occurrences) == pytest.approx(sorted(durations))

    inside = [
        (max(e["ts"], step["ts"]), min(e["ts"] + e["dur"], step["ts"] + step["dur"]), e["name"])
        for e in events
        if e["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")
    ]
    used = covered([(a, b) for a, b, _ in inside])
    assert phases["gpu_idle"] == pytest.approx((step["dur"] - used) / 1e6)
    compute = [(a, b) for a, b, name in inside if not name.startswith("nccl")]
    only_communication = used - covered(compute)
    # Loading data while the GPU only communicates counts as busy too: at most that much more.
    assert 0 <= got.busy - (step["dur"] - only_communication) / 1e6 <= phases["data_loading"] + 1e-9


def test_the_real_pair_as_a_whole() -> None:
    case("kineto/rank-0.json.gz")
    table, notes = load([str(CASES / "kineto")])
    with table:
        assert not notes
        assert table.iterations == [551, 552]
        assert sorted(table.ranks) == [0, 1]
        assert {rank.world_size for rank in table.ranks.values()} == {128}
        collectives = [row for _, rows in table for row in rows if row["collective"] >= 0]
        assert len(collectives) == 20  # ten ncclKernel_SendRecv in each file
        # Rank 0's first all_to_all sends 384 longs.
        [first] = [r for r in table.read(551) if r["rank"] == 0 and r["bytes"] == 384 * 8]
        assert table.collectives[first["collective"]] == Collective("all_to_all", "world", "world-0")
        assert first["duration"] == pytest.approx(0.030669)


def made(**changes: Any) -> dict[str, Any]:
    """A small trace in which everything is easy to add up (microseconds)."""

    def event(cat: str, name: str, tid: int, ts: float, dur: float, **args: Any) -> Event:
        return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur, "args": args}

    nccl = {
        "Collective name": "allreduce",
        "In msg nelems": 1000,
        "dtype": "BFloat16",
        "Group size": 4,
        "Process Group Description": "DATA_PARALLEL_GROUP",
        "Process Group Ranks": "[4, 6, 8, 10]",
    }
    events = [
        event("user_annotation", "ProfilerStep#7", 1, 1000, 1000),
        event("user_annotation", "DistributedDataParallel.forward", 1, 1100, 300),
        event("user_annotation", "Optimizer.step#Adam.step", 1, 1800, 100),
        event("cpu_op", "autograd::engine::evaluate_function: MmBackward0", 2, 1500, 100),
        event("cuda_runtime", "cudaLaunchKernel", 1, 1110, 5, correlation=1),
        event("cuda_runtime", "cudaLaunchKernel", 1, 1120, 5, correlation=2),
        event("cuda_runtime", "cudaLaunchKernel", 2, 1510, 5, correlation=3),
        event("cuda_runtime", "cudaLaunchKernel", 2, 1650, 5, correlation=4),  # between two functions
        event("cuda_runtime", "cudaLaunchKernel", 1, 1810, 5, correlation=5),
        event("cuda_runtime", "cudaLaunchKernel", 1, 1050, 5, correlation=6),  # in no phase
        event("kernel", "gemm", 70, 1200, 100, correlation=1),
        event("kernel", "gemm", 71, 1250, 100, correlation=2),  # overlaps: together 150
        event("kernel", "gemm", 70, 1520, 80, correlation=3),
        event("kernel", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)", 72, 1600, 200, correlation=4, **nccl),
        event("gpu_memset", "Memset (Device)", 70, 1850, 0, correlation=5),
        event("gpu_memcpy", "Memcpy HtoD", 70, 1060, 10, correlation=6),
    ]
    return {"distributedInfo": {"rank": 6, "world_size": 12}, "traceEvents": events, **changes}


def write(path: Path, document: dict[str, Any]) -> Path:
    path.write_text(json.dumps(document))
    return path


def check_made(path: Path) -> None:
    got, table = read(path, 7, 6)
    # Device work 1060..1070, 1200..1350, 1520..1600 and 1600..1800 of 1000..2000.
    assert seconds(got, table) == pytest.approx(
        {"forward": 150e-6, "backward": 80e-6, "other": 10e-6, "all_reduce": 200e-6, "gpu_idle": 560e-6}
    )
    assert got.wall == pytest.approx(1e-3)
    assert got.busy == pytest.approx(800e-6)
    [collective] = table.collectives
    assert collective == Collective("all_reduce", "dp", "dp-4", 4)
    assert got.rows["bytes"][got.rows["collective"] >= 0].tolist() == [2000.0]


def test_a_trace_that_can_be_added_up(tmp_path: Path) -> None:
    check_made(write(tmp_path / "trace.json", made()))


def test_events_in_any_order_and_info_at_the_end(tmp_path: Path) -> None:
    document = made()
    document["traceEvents"].reverse()
    document["distributedInfo"] = document.pop("distributedInfo")
    check_made(write(tmp_path / "trace.json", document))


def test_the_rank_from_the_file_name(tmp_path: Path) -> None:
    document = made()
    del document["distributedInfo"]
    check_made(write(tmp_path / "rank-6.json", document))
    with pytest.raises(TraceError, match="name the file rank-<number>"):
        load([str(write(tmp_path / "trace.json", document))])


def test_a_packed_file_that_was_cut_gives_what_is_whole(tmp_path: Path) -> None:
    document = made()
    document["traceEvents"] += [{"ph": "i", "name": f"mark {n * n * 7919}"} for n in range(20_000)]
    packed = gzip.compress(json.dumps(document).encode())
    path = tmp_path / "rank-6.json.gz"
    path.write_bytes(packed[: len(packed) // 2])
    table, notes = load([str(path)])
    with table:
        assert len(table.read(7)) == 7  # five phases, wall and busy
    assert "cut short or damaged" in "\n".join(notes.lines())


def test_a_cut_in_an_event(tmp_path: Path) -> None:
    text = json.dumps(made())
    path = tmp_path / "trace.json"
    path.write_text(text[: text.rindex('"cat": "gpu_memcpy"')])
    table, notes = load([str(path)])
    with table:
        assert 7 in table.iterations
    assert "cut short or damaged in an event" in "\n".join(notes.lines())


def test_without_iterations_it_says_what_to_do(tmp_path: Path) -> None:
    document = made()
    document["traceEvents"] = document["traceEvents"][1:]
    with pytest.raises(TraceError, match=r"profiler\.step\(\)"):
        load([str(write(tmp_path / "trace.json", document))])


def test_the_same_iteration_twice_counts_once(tmp_path: Path) -> None:
    write(tmp_path / "a.json", made())
    write(tmp_path / "b.json", made())
    table, notes = load([str(tmp_path)])
    with table:
        assert sum(1 for row in table.read(7) if row["collective"] >= 0) == 1
    assert "another file of the rank already has" in "\n".join(notes.lines())


def test_odd_events_are_left_out(tmp_path: Path) -> None:
    document = made()
    document["traceEvents"] += [
        {"ph": "X", "cat": "kernel", "name": "k", "pid": 1, "tid": 7, "args": {"correlation": 99}},
        {"ph": "X", "cat": "kernel", "name": "k", "ts": "soon", "dur": 1, "args": {"correlation": "x"}},
        {"ph": "X", "cat": "kernel", "name": "k", "ts": 1e300, "dur": 1, "args": {"correlation": 1}},
        {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{'9' * 40}", "ts": 1, "dur": 1},
        {"ph": "i"},
        17,
    ]
    table, notes = load([str(write(tmp_path / "trace.json", document))])
    with table:
        assert len(table.read(7)) == 7  # five phases, wall and busy
    assert "without valid times" in "\n".join(notes.lines())


def test_a_nesting_bomb_is_damage(tmp_path: Path) -> None:
    text = json.dumps(made())
    path = tmp_path / "trace.json"
    path.write_text(text[: text.rindex("]}")] + ", " + "[" * 200_000 + "]" * 200_000 + "]}")
    table, notes = load([str(path)])
    with table:
        assert len(table.read(7)) == 7
    assert "nested too deeply" in "\n".join(notes.lines())


def test_a_trace_of_the_cpu_only_says_what_is_missing(tmp_path: Path) -> None:
    document = made()
    document["traceEvents"] = [
        e for e in document["traceEvents"] if e["cat"] in ("user_annotation", "cpu_op")
    ]
    table, notes = load([str(write(tmp_path / "trace.json", document))])
    with table:
        assert len(table.read(7)) == 2  # wall and busy
    assert "no GPU work" in "\n".join(notes.lines())
