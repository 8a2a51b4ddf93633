"""The live accounting, with the clock moved by hand: every expected number is worked out on paper."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

import argus
from argus import _native
from native_support import CONSTANTS, Snapshot, Traced, in_thread, traced


@pytest.fixture
def tracer() -> Iterator[Traced]:
    with traced() as tracer:
        yield tracer


def test_nested_phases_are_exclusive(tracer: Traced) -> None:
    clock = tracer.clock
    with argus.iteration():
        clock.advance(1)
        with argus.phase("forward"):
            clock.advance(10)
            with argus.phase("attention"):
                clock.advance(200)
                with argus.phase("all_reduce"):
                    clock.advance(3000)
                clock.advance(20)
            clock.advance(40_000)
        clock.advance(5)
    snapshot = tracer.snapshot()
    assert snapshot.in_iteration(0) == {"forward": 40_010, "attention": 220, "all_reduce": 3000}
    (slot,) = snapshot.iterations
    assert (slot["wall"], slot["busy"], slot["iteration"]) == (43_236, 40_230, 0)
    assert [snapshot.total(name) for name in ("forward", "attention", "all_reduce")] == [40_010, 220, 3000]
    kinds = {name: phase["kind"] for name, phase in snapshot.phases.items()}
    assert kinds == {
        "forward": CONSTANTS["KIND_COMPUTE"],
        "attention": CONSTANTS["KIND_COMPUTE"],
        "all_reduce": CONSTANTS["KIND_COMMUNICATION"],
    }


def test_the_same_phase_within_itself_counts_once_per_moment(tracer: Traced) -> None:
    phase = argus.phase("layer")
    with phase:
        tracer.clock.advance(7)
        with phase:
            tracer.clock.advance(100)
        tracer.clock.advance(1)
    snapshot = tracer.snapshot()
    assert snapshot.total("layer") == 108
    assert snapshot.occurrences("layer") == 2


def test_phases_on_other_threads_cover_those_begun_before(tracer: Traced) -> None:
    clock = tracer.clock

    def loader() -> None:
        with argus.phase("prefetch", "host"):
            clock.advance(50)

    with argus.iteration(), argus.phase("forward"):
        clock.advance(10)
        in_thread(loader)
        clock.advance(5)
    snapshot = tracer.snapshot()
    assert snapshot.in_iteration(0) == {"forward": 15, "prefetch": 50}
    assert snapshot.iterations[0]["busy"] == 65 == snapshot.iterations[0]["wall"]


def test_ends_out_of_order_and_on_another_thread(tracer: Traced) -> None:
    clock, first, second = tracer.clock, argus.phase("first"), argus.phase("second")
    first.__enter__()
    clock.advance(1)
    second.__enter__()
    clock.advance(10)
    in_thread(lambda: first.__exit__(None, None, None))  # begun here, ended there, under another
    clock.advance(100)
    second.__exit__(None, None, None)
    clock.advance(1000)
    second.__exit__(None, None, None)  # one end too many: nothing happens
    snapshot = tracer.snapshot()
    assert (snapshot.total("first"), snapshot.total("second")) == (1, 110)
    assert _native.status()["open_phases"] == 0


def test_an_end_belongs_to_its_own_thread(tracer: Traced) -> None:
    clock, phase = tracer.clock, argus.phase("shared")
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with phase:
            entered.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    with phase:
        clock.advance(1)
        thread.start()
        entered.wait(10)
        clock.advance(10)
    # This thread's entry ended, though the other's was on top.
    assert tracer.snapshot().total("shared") == 1
    clock.advance(100)
    leave.set()
    thread.join()
    assert tracer.snapshot().total("shared") == 111


def test_an_exception_ends_the_phase_and_passes(tracer: Traced) -> None:
    def forward() -> None:
        with argus.phase("forward"):
            tracer.clock.advance(9)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        forward()
    assert tracer.snapshot().total("forward") == 9


def test_collectives(tracer: Traced) -> None:
    clock = tracer.clock
    with argus.iteration():
        for size, ns in ((1000, 50), (1000, 20)):
            with argus.collective("all_reduce", "dp", "dp-0", bytes=size, members=8, nodes=2):
                clock.advance(ns - 5)
                with argus.phase("unpack"):
                    clock.advance(5)
        pending = argus.collective("all_gather", group="dp", group_id="dp-0")
        pending.__enter__()
        clock.advance(1)
        record = tracer.snapshot().collectives[1]
        assert (record["enqueued"], record["completed"]) == (3, 0)
        pending.__exit__(None, None, None)
    snapshot = tracer.snapshot()
    reduce, gather = snapshot.collectives
    assert (reduce["op"], reduce["group"], reduce["group_id"]) == ("all_reduce", "dp", "dp-0")
    assert (reduce["members"], reduce["nodes"], reduce["bytes"]) == (8, 2, 2000)
    assert reduce["seconds"]["sum"] == 70  # inclusive
    assert (gather["enqueued"], gather["completed"]) == (3, 3)
    assert snapshot.in_iteration(0) == {"all_reduce": 60, "unpack": 10, "all_gather": 1}
    assert snapshot.iterations[0]["collective"][0] == {
        "fastest": 20,
        "typical": 35,
        "occurrences": 2,
        "best_bandwidth": pytest.approx(1000 / 20e-9),
    }


def test_operations_that_a_library_numbers_are_not_counted_again(tracer: Traced) -> None:
    def reduce(sequence: int | None) -> tuple[int, int]:
        with argus.collective("all_reduce", "dp", "dp-0", sequence=sequence):
            tracer.clock.advance(1)
        (record,) = tracer.snapshot().collectives
        return record["enqueued"], record["completed"]

    assert reduce(41) == (41, 41)
    assert reduce(None) == (42, 42)
    assert reduce(40) == (42, 42)  # somebody has enqueued more meanwhile
    assert reduce(50) == (50, 50)


def test_the_size_of_a_communicator_may_be_said_later(tracer: Traced) -> None:
    for size in ({}, {"members": 8, "nodes": 2}, {"members": 5}, {}):
        with argus.collective("broadcast", "dp", "dp-40", **size):
            tracer.clock.advance(1)
    (record,) = tracer.snapshot().collectives
    assert (record["members"], record["nodes"], record["enqueued"]) == (8, 2, 4)


def test_communicators_are_named_by_the_resolver_and_again_after_a_refresh(tracer: Traced) -> None:
    answers = {("dp", None): ("dp-4", 4, 1), ("pp", 9): ("pp-5-9", 2, 2)}
    _native.configure(resolve=lambda group, peer: answers[group, peer])
    try:
        for _ in range(2):
            with argus.collective("all_reduce", "dp"), argus.collective("send", "pp", peer=9):
                pass
            with argus.collective("all_reduce", "strange"):  # the resolver fails
                pass
        answers["dp", None] = ("dp-6", 8, 1)
        _native.refresh()
        with argus.collective("all_reduce", "dp"):
            pass
        with argus.collective("all_reduce", "dp", members=3):
            pass
    finally:
        _native.configure(resolve=lambda group, peer: (f"{group}-unknown", -1, -1))
    found = [(r["group_id"], r["members"], r["nodes"], r["completed"]) for r in tracer.snapshot().collectives]
    assert found == [
        ("dp-4", 4, 1, 2),
        ("pp-5-9", 2, 2, 2),
        ("strange-unknown", -1, -1, 2),
        ("dp-6", 8, 1, 2),
    ]


def test_work(tracer: Traced) -> None:
    argus.work(tokens=4096)
    argus.work(tokens=1, samples=2.5)
    argus.work("mlp", tokens=7)
    argus.work(phase="mlp", tokens=3)
    argus.work(tokens=-1)
    argus.work(tokens="many")  # type: ignore[arg-type]
    argus.work(tokens=float("nan"))
    snapshot = tracer.snapshot()
    assert snapshot.work == {("tokens", ""): 4097, ("samples", ""): 2.5, ("tokens", "mlp"): 10}
    assert snapshot.sources["phases"]["dropped"] == 3
    assert any("work(tokens=" in line for line in tracer.reports)


def test_the_open_phase_is_shown(tracer: Traced) -> None:
    def open_phase() -> tuple[str, int] | None:
        snapshot = tracer.snapshot()
        word = snapshot.state["open_phase"]
        return None if word == 2**64 - 1 else (snapshot.phase_names[word >> 56], word & (2**56 - 1))

    assert open_phase() is None
    with argus.phase("outer"):
        begin = tracer.clock.now
        tracer.clock.advance(5)
        with argus.phase("inner"):
            assert open_phase() == ("inner", begin + 5)
        assert open_phase() == ("outer", begin)
    assert open_phase() is None


def test_kinds(tracer: Traced) -> None:
    assert argus.phase("kinds: inferred").kind == "compute"
    assert argus.phase("data_loading").kind == "host"
    assert argus.phase("grad_sync").kind == "communication"
    with argus.phase("kinds: late"):
        pass
    with argus.phase("kinds: late", kind="host"):
        pass
    snapshot = tracer.snapshot()
    assert snapshot.phases["kinds: late"]["kind"] == CONSTANTS["KIND_HOST"]
    assert tracer.reports == []
    assert argus.phase("kinds: wrong", "gpu").kind == "mixed"
    assert len(tracer.reports) == 1
    assert "compute, host, communication or mixed" in tracer.reports[0]
    assert argus.phase("kinds: late", "compute").kind == "host"
    assert len(tracer.reports) == 2


def test_the_tracers_own_report(tracer: Traced) -> None:
    source = tracer.snapshot().sources["phases"]
    assert (source["enabled"], source["events"]) == (1, 0)
    for _ in range(3):
        with argus.phase("a"), argus.phase("b"):
            tracer.clock.advance(2)
    source = tracer.snapshot().sources["phases"]
    assert (source["events"], source["last_event"]) == (6, tracer.clock.now)
    _native.stop()
    with traced():
        pass


def test_cost_is_events_times_the_calibrated_cost() -> None:
    segment = _native.Segment(None, run_id="r", rank=0)
    _native.set_clock(1)
    _native.start(segment, cost_per_event=100.0)
    try:
        with argus.iteration():
            for _ in range(7):
                with argus.phase("a"):
                    pass
        assert Snapshot(segment.snapshot()).sources["phases"]["cost"] == 700
    finally:
        _native.stop()
        _native.set_clock(0)
