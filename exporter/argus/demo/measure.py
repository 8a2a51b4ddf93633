"""Durations of this rank, from its own segment."""

from __future__ import annotations

from argus._native import monotonic_ns, own_segments
from argus.segment.reader import read


class NotMeasuredError(RuntimeError):
    """This rank has no window yet, or tracing is off."""


def typical_seconds(phase: str) -> tuple[float, float]:
    """Typical seconds per iteration of the phase, and of the whole iteration, over the window.

    Raises:
        NotMeasuredError: There is no window, or the phase does not occur.
    """
    for segment in own_segments():
        window = read(segment.snapshot(), monotonic_ns()).window()
        if window is not None:
            for found, spread in window.phases:
                if found.name == phase:
                    return spread.typical, window.wall.typical
    raise NotMeasuredError(f"this rank has not recorded phase {phase}; is tracing on? (see the job's log)")
