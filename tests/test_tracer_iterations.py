"""Iterations, their boundaries and pauses, with the clock moved by hand."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import argus
from argus import _native
from native_support import Traced, in_thread, traced


@pytest.fixture
def tracer() -> Iterator[Traced]:
    with traced() as tracer:
        yield tracer


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
    with argus.iteration(), argus.phase("around: a pause", "compute"):
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
    assert snapshot.occurrences("around: a pause") == 1
    assert snapshot.total("around: a pause") == 21
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
