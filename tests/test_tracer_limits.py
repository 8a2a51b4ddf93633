"""The live accounting at its limits: full tables, wrong arguments, signals, what is kept too long."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import argus
from argus import _native
from native_support import CONSTANTS, Traced, in_thread, run_python, traced


@pytest.fixture
def tracer() -> Iterator[Traced]:
    with traced() as tracer:
        yield tracer


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
        lambda: argus.phase("a", "host", True, "b"),  # type: ignore[call-arg]
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
