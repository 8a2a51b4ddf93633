"""The native segment: layout table, file life, records."""

from __future__ import annotations

import random
import statistics
from fractions import Fraction

import pytest

from argus._native import Segment, layout
from native_support import CONSTANTS, LAYOUT, Snapshot


def memory(**identity: object) -> Segment:
    return Segment(None, **{"run_id": "run", "rank": 3, **identity})  # type: ignore[arg-type]


def sizes(code: str, length: int) -> int:
    if code.startswith("S"):
        return int(code[1:])
    return length * (LAYOUT["structs"][code]["size"] if code in LAYOUT["structs"] else int(code[1:]))


def test_the_layout_table_leaves_no_field_out() -> None:
    reserved = {("identity", 4)}
    for name, table in LAYOUT["structs"].items():
        at = 0
        for offset, code, length in sorted(table["fields"].values()):
            assert offset == at or (name, offset - at) in reserved, (name, offset)
            at = offset + sizes(code, length)
        assert at == table["size"], name


def test_the_layout_is_a_new_object_each_time() -> None:
    layout()["constants"]["MAX_PHASES"] = 0
    assert layout()["constants"]["MAX_PHASES"] == 33


def test_sections_lie_apart_within_the_file() -> None:
    snapshot = Snapshot(memory().snapshot())
    header = snapshot.header
    assert header["magic"] == "ARGUSSEG"
    assert header["total_bytes"] == len(snapshot.data)
    end = header["header_bytes"]
    for section in header["section"][: header["sections"]]:
        assert section["offset"] >= end
        assert section["offset"] % 8 == 0
        end = section["offset"] + section["records"] * section["record_bytes"]
    assert end <= header["total_bytes"]


def test_identity_round_trip() -> None:
    segment = memory(
        role="encoder", node="n1", local_rank=1, world_size=8, attempt=2, dp=1, tp=2, pp=None, cp=-1, ep=5
    )
    identity = Snapshot(segment.snapshot()).identity
    assert identity["run_id"] == "run"
    assert identity["role"] == "encoder"
    assert [identity[name] for name in ("rank", "local_rank", "world_size", "attempt")] == [3, 1, 8, 2]
    assert [identity[name] for name in ("dp", "tp", "pp", "cp", "ep")] == [1, 2, -1, -1, 5]
    segment.identify(pp=4, role="pp4")
    changed = Snapshot(segment.snapshot()).identity
    assert (changed["pp"], changed["role"], changed["dp"], changed["node"]) == (4, "pp4", 1, "n1")
    assert changed["seq"] % 2 == 0
    assert changed["seq"] > identity["seq"]


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("x" * 63, "x" * 63),
        ("x" * 64, "x" * 63),
        ("ä" * 40, "ä" * 31),  # 2 bytes each: 63 bytes hold 31
        ("日" * 30, "日" * 21),
        ("a" + "😀" * 20, "a" + "😀" * 15),
        ("a\nb\0c\x7f", "a_b_c_"),
        ("\ud800x", "?x"),
        ("", ""),
    ],
)
def test_text_is_cut_at_a_character(given: str, stored: str) -> None:
    segment = memory()
    segment.phase(given, "compute")
    assert Snapshot(segment.snapshot()).phase_names == [stored]


def bucket_by_definition(ns: int) -> int:
    """Index with upper bound 2^(-20 + i/8) s, in exact arithmetic of the double that ns / 1e9 is."""
    seconds = Fraction(ns / 1e9)
    for i in range(257):
        # seconds <= 2^(-20 + i/8)  <=>  seconds^8 <= 2^(-160 + i)
        if seconds**8 <= Fraction(2) ** (i - 160):
            return i
    return 257


def test_histogram_boundaries() -> None:
    generator = random.Random(1)
    durations = [0, 1, 953, 954, 10**9, 2 * 10**9, 10**9 + 1, 4096 * 10**9, 4096 * 10**9 + 1, 2**62]
    # Around every boundary, where a rounded bound would go wrong.
    for i in range(0, 257, 3):
        near = round(2 ** (-20 + i / 8) * 1e9)
        durations += [max(0, near - 1), near, near + 1]
    durations += [int(10 ** generator.uniform(0, 13)) for _ in range(500)]
    expected = [0] * 258
    segment = memory()
    index = segment.phase("p", "compute")
    for ns in durations:
        segment.observe_phase(index, ns)
        expected[bucket_by_definition(ns)] += 1
    histogram = Snapshot(segment.snapshot()).phases["p"]["seconds"]
    assert histogram["bucket"] == expected
    assert histogram["sum"] == sum(durations) % 2**64
    assert histogram["seq"] == 2 * len(durations)


def test_iterations_ring_and_sums() -> None:
    segment = memory()
    compute, host = segment.phase("forward", "compute"), segment.phase("data_loading", "host")
    mixed, wait = segment.phase("step", "mixed"), segment.phase("all_reduce", "communication")
    for n in range(100):
        for index, ns in ((compute, 10 + n), (compute, 5), (host, 3), (mixed, 100), (wait, 1000)):
            segment.observe_phase(index, ns)
        segment.end_iteration(500 + n, 10_000 * (n + 1), 2000, 77 if n == 99 else None)
    snapshot = Snapshot(segment.snapshot())
    assert [slot["ordinal"] for slot in snapshot.iterations] == list(range(29, 101))
    last, before = snapshot.iterations[-1], snapshot.iterations[-2]
    assert (last["iteration"], last["end"], last["wall"], last["busy"]) == (599, 1_000_000, 2000, 77)
    assert before["busy"] == 10 + 98 + 5 + 3  # neither mixed nor communication
    assert snapshot.in_iteration(-2) == {"forward": 113, "data_loading": 3, "step": 100, "all_reduce": 1000}
    state = snapshot.state
    assert (state["iterations"], state["last_iteration"], state["last_iteration_end"]) == (
        100,
        599,
        1_000_000,
    )
    assert state["iteration_sum"] == 200_000
    assert state["busy_sum"] == sum(18 + n for n in range(99)) + 77
    assert sum(snapshot.iteration_seconds["bucket"]) == 100


def test_collectives_of_one_communicator_share_their_sequence() -> None:
    segment = memory()
    reduce = segment.collective("reduce_scatter", "dp", "dp-0", members=4, nodes=2)
    gather = segment.collective("all_gather", "dp", "dp-0", members=4, nodes=2)
    other = segment.collective("all_gather", "tp", "tp-0")
    assert segment.collective("all_gather", "dp", "dp-0") == gather
    for index in (reduce, gather, reduce, other):
        segment.observe_collective(index, 1000, 10)
    records = Snapshot(segment.snapshot()).collectives
    assert [(record["enqueued"], record["completed"]) for record in records] == [(3, 3), (2, 2), (1, 1)]
    assert [(record["members"], record["nodes"]) for record in records] == [(4, 2), (4, 2), (-1, -1)]
    assert [record["bytes"] for record in records] == [20, 10, 10]
    segment.sequence(other, 9, 7)
    assert Snapshot(segment.snapshot()).collectives[other]["completed"] == 7


def test_collective_statistics_of_an_iteration() -> None:
    segment = memory()
    index = segment.collective("all_reduce", "world", "world-0")
    durations, sizes_ = [4000, 1000, 9000, 2000], [4000, 500, 90_000, 0]
    for ns, size in zip(durations, sizes_, strict=True):
        segment.observe_collective(index, ns, size)
    segment.end_iteration(0, 1, 1)
    segment.observe_collective(index, 7000)
    segment.end_iteration(1, 2, 1)
    first, second = (slot["collective"][index] for slot in Snapshot(segment.snapshot()).iterations)
    assert first == {
        "fastest": 1000,
        "typical": 3000,
        "occurrences": 4,
        "best_bandwidth": pytest.approx(90_000 / 9e-6),
    }
    assert second == {"fastest": 7000, "typical": 7000, "occurrences": 1, "best_bandwidth": 0.0}


def test_typical_of_many_occurrences_is_close_to_their_median() -> None:
    generator = random.Random(7)
    segment = memory()
    index = segment.collective("send", "pp", "pp-0-1")
    errors = []
    for n in range(60):
        durations = [round(generator.lognormvariate(10, 0.3)) for _ in range(1000)]
        for ns in durations:
            segment.observe_collective(index, ns)
        segment.end_iteration(n, n + 1, 1)
        errors.append(statistics.median(durations))
    slots = Snapshot(segment.snapshot()).iterations
    ratios = [
        slot["collective"][index]["typical"] / median for slot, median in zip(slots, errors, strict=True)
    ]
    # 64 of 1,000: the standard error of the median is 1.2533 * 0.3 / 8 = 4.7 %.
    assert statistics.mean(ratios) == pytest.approx(1, abs=0.02)
    assert max(abs(ratio - 1) for ratio in ratios) < 0.2


def test_full_tables_are_counted_and_nothing_is_overwritten() -> None:
    segment = memory()
    indices = [segment.phase(f"p{i}", "compute") for i in range(40)]
    assert indices == [*range(32), *[32] * 8]
    assert segment.dropped == 8
    collectives = [segment.collective("p0", "g", f"g-{i}") for i in range(34)]
    assert collectives == [*range(32), -1, -1]
    assert segment.dropped == 10
    for i in range(20):
        segment.work(f"unit{i}", "", 1)
    assert segment.dropped == 14
    segment.observe_phase(32, 5)
    snapshot = Snapshot(segment.snapshot())
    assert snapshot.other["name"] == "other"
    assert snapshot.other["kind"] == CONSTANTS["KIND_MIXED"]
    assert sum(snapshot.other["seconds"]["bucket"]) == 1
    assert len(snapshot.work) == 16


def test_open_phase_and_pause() -> None:
    segment = memory()
    index = segment.phase("forward", "compute")
    segment.open_phase(index, 12345)
    segment.pause("evaluation", 99)
    state = Snapshot(segment.snapshot()).state
    assert state["open_phase"] == index << 56 | 12345
    assert (state["pause_kind"], state["pause_begin"]) == ("evaluation", 99)
    segment.open_phase(-1)
    segment.pause(None)
    state = Snapshot(segment.snapshot()).state
    assert (state["open_phase"], state["pause_begin"]) == (2**64 - 1, 0)


def test_wrong_arguments_are_refused() -> None:
    segment = memory()
    index = segment.phase("p", "compute")
    with pytest.raises(ValueError, match="compute, host"):
        segment.phase("q", "gpu")
    with pytest.raises(IndexError):
        segment.observe_phase(index + 1, 1)
    with pytest.raises(IndexError):
        segment.observe_collective(0, 1)
    with pytest.raises(ValueError, match="negative"):
        segment.observe_phase(index, -1)
    with pytest.raises(TypeError):
        segment.observe_phase(index, 1.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        segment.observe_phase(index)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match=">= 0"):
        segment.work("tokens", "", float("nan"))
    with pytest.raises(TypeError, match="rank"):
        Segment(None, run_id="r")  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="out of range"):
        memory(world_size=2**40)
    segment.close()
    with pytest.raises(ValueError, match="closed"):
        segment.snapshot()
