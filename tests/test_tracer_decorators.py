"""Phases, iterations, collectives and pauses as decorators."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator, Iterator

import pytest

import argus
from native_support import Traced, traced


@pytest.fixture
def tracer() -> Iterator[Traced]:
    with traced() as tracer:
        yield tracer


def test_a_function(tracer: Traced) -> None:
    @argus.iteration()
    def step(x: int, *, y: int = 0) -> int:
        """Does a step."""
        return forward(x) + y

    @argus.phase("forward")
    def forward(x: int) -> int:
        tracer.clock.advance(x)
        return x

    @argus.collective("barrier", group_id="world-0")
    def barrier() -> None:
        tracer.clock.advance(1)

    @argus.pause("evaluation")
    def evaluate() -> None:
        tracer.clock.advance(1000)

    assert step(3, y=4) == 7
    assert step(5) == 5
    barrier()
    evaluate()
    assert (step.__name__, step.__doc__) == ("step", "Does a step.")
    snapshot = tracer.snapshot()
    assert [slot["wall"] for slot in snapshot.iterations] == [3, 5]
    assert snapshot.total("forward") == 8
    assert snapshot.collectives[0]["completed"] == 1


def test_a_method_and_an_exception(tracer: Traced) -> None:
    class Model:
        @argus.phase("forward")
        def forward(self) -> None:
            tracer.clock.advance(2)
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        Model().forward()
    assert tracer.snapshot().total("forward") == 2


def test_a_recursive_iteration_counts_once(tracer: Traced) -> None:
    @argus.iteration()
    def step(depth: int) -> None:
        tracer.clock.advance(1)
        if depth:
            step(depth - 1)

    step(2)
    assert [slot["wall"] for slot in tracer.snapshot().iterations] == [3]


def test_a_coroutine_counts_with_what_it_awaits(tracer: Traced) -> None:
    async def fetch() -> int:
        tracer.clock.advance(10)
        await asyncio.sleep(0)
        tracer.clock.advance(20)
        return 5

    @argus.phase("rollout")
    async def rollout() -> int:
        tracer.clock.advance(1)
        return await fetch()

    assert asyncio.run(rollout()) == 5
    assert tracer.snapshot().total("rollout") == 31


def test_a_generator_counts_its_steps_only(tracer: Traced) -> None:
    @argus.phase("data_loading")
    def batches() -> Generator[int, str, str]:
        tracer.clock.advance(1)
        try:
            sent = yield 10
            assert sent == "hello"
            tracer.clock.advance(2)
            yield 20
        except KeyError:
            tracer.clock.advance(4)
            yield 30
        return "done"

    generator = batches()
    assert next(generator) == 10
    tracer.clock.advance(1000)
    assert generator.send("hello") == 20
    tracer.clock.advance(1000)
    assert generator.throw(KeyError()) == 30
    with pytest.raises(StopIteration) as stop:
        next(generator)
    assert stop.value.value == "done"
    snapshot = tracer.snapshot()
    assert snapshot.total("data_loading") == 7
    assert snapshot.occurrences("data_loading") == 4


def test_a_generator_that_is_closed(tracer: Traced) -> None:
    closed = []

    @argus.phase("data_loading")
    def batches() -> Iterator[int]:
        try:
            yield 1
        finally:
            closed.append(True)

    generator = batches()
    next(generator)
    generator.close()  # type: ignore[attr-defined]
    assert closed == [True]


def test_an_asynchronous_generator_is_left_alone(tracer: Traced) -> None:
    async def stream() -> AsyncIterator[int]:
        yield 1

    assert argus.phase("stream")(stream) is stream


def test_what_is_no_function() -> None:
    with pytest.raises(TypeError, match="function"):
        argus.phase("a")(3)  # type: ignore[type-var]
    with pytest.raises(TypeError):
        argus.phase("a")()  # type: ignore[call-arg]
