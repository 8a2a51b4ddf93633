"""What the tracer costs, for its own report."""

from __future__ import annotations

import time

from argus import _native

_ROUNDS = 500


def cost_of_a_phase() -> float:
    """Nanoseconds that one phase costs in this process, its Python side included: best of a few.

    Uses the tracer, which must not be running, and takes half a millisecond.
    """
    phase = _native.phase("other")
    _native.start(_native.Segment(None, run_id="calibration", rank=0))
    try:
        # Each its own best: a difference of two that were interrupted could be below zero.
        with_phases = min(_time_phases(phase) for _ in range(5))
        return max(with_phases - min(_time_nothing() for _ in range(5)), 0) / _ROUNDS
    finally:
        _native.stop()


def _time_phases(phase: _native.Phase) -> int:
    begin = time.perf_counter_ns()
    for _ in range(_ROUNDS):
        with phase:
            pass
    return time.perf_counter_ns() - begin


def _time_nothing() -> int:
    begin = time.perf_counter_ns()
    for _ in range(_ROUNDS):
        pass
    return time.perf_counter_ns() - begin
