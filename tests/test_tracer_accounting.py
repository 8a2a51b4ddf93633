"""The live accounting, with the clock moved by hand: every expected number is worked out on paper."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import argus
from argus import _native
from native_support import CONSTANTS, Snapshot, Traced, run_python, traced


@pytest.fixture
def tracer() -> Iterator[Traced]:
    with traced() as tracer:
        yield tracer


def in_thread(work: Callable[[], None]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


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


def test_iterations_begin_where_the_last_one_ended(tracer: Traced) -> None:
    clock = tracer.clock
    clock.advance(1000)  # before the first: nobody's
    for step in (None, 10, None):
        with argus.iteration(step):
            clock.advance(10)
        with argus.phase("data_loading"):
            clock.advance(5)
    slots = tracer.snapshot().iterations
    assert [(slot["iteration"], slot["wall"]) for slot in slots] == [(0, 10), (10, 15), (11, 15)]
    assert [tracer.snapshot().in_iteration(i) for i in range(3)] == [
        {},
        {"data_loading": 5},
        {"data_loading": 5},
    ]


def test_a_phase_across_an_iteration_boundary_is_split(tracer: Traced) -> None:
    clock = tracer.clock
    save = argus.phase("save", "host")
    with argus.iteration():
        clock.advance(3)
        save.__enter__()
        clock.advance(4)
    clock.advance(5)
    with argus.iteration():
        clock.advance(6)
        save.__exit__(None, None, None)
    snapshot = tracer.snapshot()
    assert [snapshot.in_iteration(i) for i in (0, 1)] == [{"save": 4}, {"save": 11}]
    assert snapshot.occurrences("save") == 1
    assert snapshot.total("save") == 15


def test_an_iteration_left_by_an_exception_is_none(tracer: Traced) -> None:
    clock = tracer.clock

    def out_of_memory() -> None:
        with argus.iteration(), argus.phase("forward"):
            clock.advance(100)
            raise MemoryError

    with argus.iteration():
        clock.advance(1)
    with pytest.raises(MemoryError):
        out_of_memory()
    clock.advance(1000)
    with argus.iteration():
        clock.advance(2)
    snapshot = tracer.snapshot()
    assert [(slot["iteration"], slot["wall"]) for slot in snapshot.iterations] == [(0, 1), (1, 2)]
    assert snapshot.in_iteration(1) == {}


def test_nested_and_concurrent_iterations_are_part_of_the_first(tracer: Traced) -> None:
    clock = tracer.clock

    def other() -> None:
        with argus.iteration():
            clock.advance(20)

    with argus.iteration():
        with argus.iteration(99):
            clock.advance(3)
        in_thread(other)
    assert [(slot["iteration"], slot["wall"]) for slot in tracer.snapshot().iterations] == [(0, 23)]


def test_an_iteration_block_that_is_lost_does_not_stop_the_count(tracer: Traced) -> None:
    def steps() -> Iterator[int]:
        for step in range(3):
            with argus.iteration():
                tracer.clock.advance(2)
                yield step

    generator = steps()
    next(generator)
    next(generator)
    del generator  # closes it, within the second block
    lost = argus.iteration()
    lost.__enter__()
    del lost
    with argus.iteration():
        tracer.clock.advance(7)
    assert [slot["wall"] for slot in tracer.snapshot().iterations] == [2, 7]


def test_marks(tracer: Traced) -> None:
    clock = tracer.clock
    _native.mark()
    for step in (None, 7, None):
        clock.advance(10)
        _native.mark(step)
    clock.advance(10)
    _native.mark(begin=False)
    clock.advance(1000)
    _native.mark()
    clock.advance(4)
    _native.mark()
    slots = tracer.snapshot().iterations
    assert [(slot["iteration"], slot["wall"]) for slot in slots] == [
        (0, 10),
        (7, 10),
        (8, 10),
        (9, 10),
        (10, 4),
    ]


def test_marks_are_ignored_where_blocks_are_used(tracer: Traced) -> None:
    with argus.iteration():
        tracer.clock.advance(10)
        _native.mark()
        _native.mark()
    _native.mark()
    assert [slot["wall"] for slot in tracer.snapshot().iterations] == [10]


def test_a_pause_is_no_part_of_the_iteration_around_it(tracer: Traced) -> None:
    clock = tracer.clock
    with argus.iteration(), argus.phase("forward"):
        clock.advance(1)
        with argus.pause("checkpoint"):
            state = tracer.snapshot().state
            assert (state["pause_kind"], state["pause_begin"]) == ("checkpoint", clock.now)
            clock.advance(1000)
            with argus.phase("save"), argus.pause("nested"), argus.iteration(), argus.collective("barrier"):
                clock.advance(10_000)
        clock.advance(20)
    snapshot = tracer.snapshot()
    assert snapshot.state["pause_begin"] == 0
    assert [(slot["wall"], slot["busy"]) for slot in snapshot.iterations] == [(21, 21)]
    assert snapshot.occurrences("save") == 0
    assert snapshot.occurrences("forward") == 1
    assert snapshot.total("forward") == 21
    (barrier,) = snapshot.collectives
    assert sum(barrier["seconds"]["bucket"]) == 0
    assert (barrier["enqueued"], barrier["completed"]) == (1, 1)


def test_after_a_pause_between_iterations_the_next_begins_at_its_block(tracer: Traced) -> None:
    clock = tracer.clock
    with argus.iteration():
        clock.advance(1)
    clock.advance(50)
    with argus.pause("evaluation"):
        clock.advance(1000)
    clock.advance(60)
    with argus.iteration():
        clock.advance(2)
    clock.advance(10)
    with argus.iteration():
        clock.advance(2)
    assert [slot["wall"] for slot in tracer.snapshot().iterations] == [1, 2, 12]


def test_a_pause_between_marks_is_subtracted(tracer: Traced) -> None:
    clock = tracer.clock
    _native.mark()
    clock.advance(5)
    with argus.pause("evaluation"):
        clock.advance(1000)
        _native.mark()
    clock.advance(6)
    _native.mark()
    assert [slot["wall"] for slot in tracer.snapshot().iterations] == [11]


def test_an_iteration_that_ends_within_an_open_pause(tracer: Traced) -> None:
    clock = tracer.clock
    pause = argus.pause("evaluation")
    with argus.iteration():
        clock.advance(5)
        pause.__enter__()
        clock.advance(100)
    clock.advance(100)
    pause.__exit__(None, None, None)
    clock.advance(1)
    with argus.iteration():
        clock.advance(2)
    assert [slot["wall"] for slot in tracer.snapshot().iterations] == [5, 3]


def test_a_pause_that_is_lost_ends(tracer: Traced) -> None:
    pause = argus.pause("evaluation")
    pause.__enter__()
    del pause
    assert tracer.snapshot().state["pause_begin"] == 0


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


def test_more_phases_than_records_become_other_and_are_counted(tracer: Traced) -> None:
    with argus.iteration():
        for n in range(40):
            with argus.phase(f"phase{n}"):
                tracer.clock.advance(1)
        with argus.phase("other"):  # asked for, so not dropped
            tracer.clock.advance(1)
    snapshot = tracer.snapshot()
    assert len(snapshot.phase_names) == 32
    assert sum(snapshot.other["seconds"]["bucket"]) == 9
    assert snapshot.iterations[0]["phase"][CONSTANTS["OTHER_PHASE"]] == 9
    assert snapshot.iterations[0]["busy"] == 32
    # Each of the 8 when it was first looked up, and each occurrence.
    assert snapshot.sources["phases"]["dropped"] == 16


def test_in_an_exit_stack(tracer: Traced) -> None:
    """It calls the methods of the class with the object."""
    with ExitStack() as stack:
        for block in (argus.pause("checkpoint"), argus.phase("a"), argus.phase("b"), argus.collective("c")):
            assert stack.enter_context(block) is block
        assert _native.status()["open_phases"] == 3
    with argus.iteration(), ExitStack() as stack:
        stack.enter_context(argus.phase("a"))
        tracer.clock.advance(7)
    assert _native.status()["open_phases"] == 0
    assert tracer.snapshot().in_iteration(0) == {"a": 7}


def test_more_threads_in_phases_than_places(tracer: Traced) -> None:
    """They end in any order; whichever got a place, none of them stays open."""
    everybody = threading.Barrier(100)

    def work(name: str) -> None:
        with argus.phase(name):
            everybody.wait(timeout=60)

    threads = [threading.Thread(target=work, args=(f"p{i % 10}",)) for i in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    status = _native.status()
    assert (status["open_phases"], status["dropped"]) == (0, 100 - 64)
    with argus.iteration():
        with argus.phase("after"):
            tracer.clock.advance(30)
        tracer.clock.advance(5)
    assert tracer.snapshot().in_iteration(0) == {"after": 30}


def test_a_phase_without_a_place_that_ends_elsewhere(tracer: Traced) -> None:
    """The end by another thread is taken for another's; phases of the same name go on well afterwards."""
    lost = argus.phase("lost")
    with ExitStack() as full:
        for _ in range(64):
            full.enter_context(argus.phase("full"))
        lost.__enter__()
        in_thread(lambda: lost.__exit__(None, None, None))
    with argus.iteration():
        with lost:
            tracer.clock.advance(30)
        tracer.clock.advance(5)
    assert tracer.snapshot().in_iteration(0) == {"lost": 30}
    assert _native.status()["open_phases"] == 0


def test_deeper_than_the_stack(tracer: Traced) -> None:
    phase = argus.phase("recursive")

    def recurse(depth: int) -> None:
        with phase:
            tracer.clock.advance(1)
            if depth > 1:
                recurse(depth - 1)

    recurse(100)
    snapshot = tracer.snapshot()
    assert snapshot.total("recursive") == 100
    assert snapshot.occurrences("recursive") == 64
    assert snapshot.sources["phases"]["dropped"] == 36
    assert _native.status()["open_phases"] == 0


MADE_UP = """
import argus
from argus import _native
_native.start(_native.Segment(None, run_id="r", rank=0))
for n in range(3000):
    with argus.phase(f"made up {n}", "host"):
        pass
print(argus.phase("made up 2999") is not argus.phase("made up 2999"),
      argus.phase("made up 3") is argus.phase("made up 3"), _native.status()["events"])
"""


def test_names_made_up_in_a_loop_do_not_fill_the_memory(tmp_path: Path) -> None:
    done = run_python(MADE_UP, tmp_path)
    assert done.stdout.split() == ["True", "True", "3000"], done.stderr


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


def test_a_kept_phase_works_before_after_and_across_tracers() -> None:
    phase = argus.phase("kept")
    with phase:  # nobody traces
        with traced() as first:
            with phase:
                first.clock.advance(3)
            total_first = first.snapshot().total("kept")
        with traced() as second:
            with argus.phase("before, so that indices differ"):
                pass
            with phase:
                second.clock.advance(4)
            total_second = second.snapshot().total("kept")
    assert (total_first, total_second) == (3, 4)
    with phase:
        pass


def test_the_tracer_takes_one_segment_at_a_time(tracer: Traced) -> None:
    with pytest.raises(RuntimeError, match="already"):
        _native.start(_native.Segment(None, run_id="r", rank=1))
    with pytest.raises(TypeError):
        _native.start("segment")  # type: ignore[arg-type]


def test_closing_the_segment_stops_the_tracer() -> None:
    segment = _native.Segment(None, run_id="r", rank=0)
    _native.start(segment)
    with argus.phase("a"):
        segment.close()
    assert not argus._native.status()["active"]
    with argus.phase("a"), argus.iteration():
        argus.work(tokens=1)
    _native.stop()


def test_wrong_arguments() -> None:
    for call in (
        lambda: argus.phase(),  # type: ignore[call-arg]
        lambda: argus.phase("a", "host", "b"),  # type: ignore[call-arg]
        lambda: argus.phase("a", colour="red"),  # type: ignore[call-arg]
        lambda: argus.phase("a", name="b"),  # type: ignore[misc]
        lambda: argus.collective(),  # type: ignore[call-arg]
        lambda: argus.work("a", "b"),  # type: ignore[call-arg]
        lambda: type(argus.phase("a"))(),
    ):
        with pytest.raises(TypeError):
            call()


def test_values_never_raise(tracer: Traced) -> None:
    """What the program computes may be wrong in the tenth hour: the user is told once, training goes on."""
    told: list[str] = []
    _native.configure(report=told.append)
    call: Any = argus  # without the types, which forbid all of this
    for number in (-1, 1.5, 2**63, "7", [], float("nan")):
        with (
            call.iteration(number),
            call.collective("all_reduce", bytes=number, members=number, nodes=number),
        ):
            tracer.clock.advance(3)
    names: tuple[Any, ...] = (3, None, [], b"x", {})
    with call.iteration(7):
        for name in names:
            with call.phase(name), call.phase("forward", kind=name):
                tracer.clock.advance(1)
            with call.collective(name):
                tracer.clock.advance(20)
            with call.collective("send", name or 3, group_id=name or 3, peer=[]):
                tracer.clock.advance(100)
            with call.pause(name):
                tracer.clock.advance(1000)
            call.work(name or 3, tokens=1)
            call.work(tokens=name)
    snapshot = tracer.snapshot()
    assert [slot["iteration"] for slot in snapshot.iterations] == [0, 1, 2, 3, 4, 5, 7]
    assert snapshot.in_iteration(0) == {"all_reduce": 3}
    # phase(name) lies around phase("forward"); collectives without a name are other's
    assert snapshot.in_iteration(6) == {"forward": 5}
    assert snapshot.iterations[6]["phase"][CONSTANTS["OTHER_PHASE"]] == 5 * (20 + 100)
    assert {"iteration()", "collective(bytes=)", "collective(members=)", "phase()"} <= {
        text.split(":")[0] for text in told
    }


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_what_a_signal_raises_meanwhile_reaches_the_program(
    tracer: Traced, kind: type[BaseException]
) -> None:
    """Its handler may run while the tracer calls Python, whose other exceptions are lost."""

    def interrupted(*_: object) -> None:
        raise kind("a signal's")

    def train() -> None:
        with argus.iteration():
            pass
        for _ in range(1000):
            pass

    _native.configure(iterated=interrupted)
    try:
        with pytest.raises(kind, match="a signal's"):
            train()
    finally:
        _native.configure(iterated=lambda count: None)


def test_phases_can_be_pickled_and_copied() -> None:
    phase = argus.phase("pickled", "host")
    assert pickle.loads(pickle.dumps(phase)) is phase
    assert copy.deepcopy([phase])[0] is phase
