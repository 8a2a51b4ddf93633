"""Units of work, from the training loop to what the rules read."""

from __future__ import annotations

import pickle

import pytest

import argus
from argus.exporter.exposition import text
from argus.exporter.registry import Registry
from argus.exporter.sources import MemorySource
from argus.segment.reader import read
from exporter_support import segment
from native_support import traced

SECOND = 10**9


def exposed(source: MemorySource, now: int, *names: str) -> dict[str, str]:
    """Samples of these metrics as a page shows them, without the labels of the rank."""
    found = {}
    for line in text.encode(Registry(source, version=None).collect(now)).decode().splitlines():
        name, _, rest = line.partition("{")
        if name in names:
            labels, _, value = rest.rpartition("} ")
            found[",".join([name, *(part for part in labels.split(",")[3:])])] = value
    return found


def test_work_of_the_loop_becomes_work_and_pace_of_the_window() -> None:
    with traced() as tracer:
        for step in range(6):
            with argus.iteration():
                with argus.phase("experts", data_dependent=True):
                    # 100 ms for each 1,000 tokens, in the last iteration 120 ms.
                    tracer.clock.advance((120 if step == 5 else 100) * 1_000_000 * (1 + step))
                    argus.work("experts", tokens=600 * (1 + step))
                    argus.work("experts", tokens=400 * (1 + step))
                with argus.phase("optimizer"):
                    tracer.clock.advance(10_000_000)
                argus.work(samples=8)
        source, now = MemorySource([tracer.segment]), tracer.clock.now
        found = exposed(
            source, now, "argus_window_work", "argus_window_work_seconds", "argus_phase_data_dependent",
            "argus_window_work_seconds_count",
        )  # fmt: skip
    pace = 'argus_window_work_seconds,unit="tokens",phase="experts",kind="compute"'
    assert found == {
        'argus_phase_data_dependent,phase="experts",kind="compute"': "1",
        'argus_window_work,unit="samples",phase=""': "8",
        'argus_window_work,unit="tokens",phase="experts"': "3500",  # median of 1000, 2000, … 6000
        f'{pace},quantile="0.0"': "0.0001",
        f'{pace},quantile="0.5"': "0.0001",
        'argus_window_work_seconds_count,unit="tokens",phase="experts",kind="compute"': "21000",
    }


def test_iterations_without_work_have_no_pace() -> None:
    rank = segment()
    mlp = rank.phase("mlp", "compute")
    for number in range(8):
        rank.observe_phase(mlp, SECOND)
        if number % 2 == 0:  # an expert that nobody asked in every other iteration
            rank.work("tokens", "mlp", 100.0)
        rank.end_iteration(number, number * SECOND, SECOND)
    window = read(rank.snapshot(), 8 * SECOND).window()
    assert window is not None
    ((work, done),) = window.work
    assert (work.unit, work.phase, done.amount) == ("tokens", "mlp", 50.0)
    assert [(phase.name, pace) for phase, pace in done.paces] == [("mlp", (0.01, 0.01))]
    # Of three iterations no pace can be told.
    later = read(rank.snapshot(), 16 * SECOND).window()
    assert later is not None
    assert [done.paces for _, done in later.work] == [[]]


def test_work_before_the_first_iteration_and_in_a_failed_one_belongs_to_none() -> None:
    def fail() -> None:
        with argus.iteration():
            argus.work(tokens=1_000_000)
            raise KeyError

    with traced() as tracer:
        argus.work(tokens=1_000_000)
        with pytest.raises(KeyError):
            fail()
        for _ in range(5):
            with argus.iteration():
                argus.work(tokens=10)
                tracer.clock.advance(1_000)
        window = read(tracer.segment.snapshot(), tracer.clock.now).window()
    assert window is not None
    assert [done.amount for _, done in window.work] == [10.0]


def test_data_dependent_reaches_a_segment_whenever_it_is_said() -> None:
    with traced() as tracer:
        for _ in range(4):
            with argus.iteration(), argus.phase("routed"):
                # While the phase is open: its end still ends it.
                kept = argus.phase("routed", data_dependent=True)
                tracer.clock.advance(1_000)
        state = read(tracer.segment.snapshot(), tracer.clock.now)
        assert [(phase.name, phase.data_dependent) for phase in state.phases] == [("routed", True)]
        assert state.open is None
    assert kept is argus.phase("routed")
    assert pickle.loads(pickle.dumps(kept)) is kept
    with traced() as tracer:  # another segment learns it as well
        with argus.iteration(), argus.phase("routed"), argus.phase("plain"):
            pass
        phases = read(tracer.segment.snapshot(), tracer.clock.now).phases
    assert {phase.name: phase.data_dependent for phase in phases} == {"routed": True, "plain": False}


def test_a_mark_that_is_none_is_reported_and_left_out() -> None:
    class Odd:
        def __bool__(self) -> bool:
            raise ValueError

    with traced() as tracer:
        assert not argus.phase("odd mark", data_dependent=Odd()).data_dependent  # type: ignore[arg-type]
        assert any("data_dependent is True or False" in line for line in tracer.reports)
