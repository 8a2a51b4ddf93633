"""Arithmetic on time intervals: arrays of shape (n, 2), begin and end in one unit."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Intervals = npt.NDArray[Any]


def union(intervals: Intervals) -> Intervals:
    """The same points in time, as disjoint intervals in order; empty ones disappear."""
    intervals = intervals[intervals[:, 1] > intervals[:, 0]]
    if len(intervals) < 2:
        return intervals
    intervals = intervals[np.argsort(intervals[:, 0], kind="stable")]
    reach = np.maximum.accumulate(intervals[:, 1])
    opens = np.concatenate(([True], intervals[1:, 0] > reach[:-1]))
    last = np.concatenate((np.nonzero(opens)[0][1:] - 1, [len(intervals) - 1]))
    return np.stack((intervals[opens, 0], reach[last]), axis=1)


def length(disjoint: Intervals) -> Any:
    """Total length of disjoint intervals."""
    return (disjoint[:, 1] - disjoint[:, 0]).sum()


def clip(intervals: Intervals, begin: Any, end: Any) -> Intervals:
    """The part within ``begin`` and ``end``."""
    clipped = np.clip(intervals, begin, end)
    return clipped[clipped[:, 1] > clipped[:, 0]]


def complement(disjoint: Intervals, begin: Any, end: Any) -> Intervals:
    """The part of ``begin`` to ``end`` that ``disjoint`` (in order) leaves out."""
    inside = clip(disjoint, begin, end)
    edges = np.concatenate(([begin], inside.reshape(-1), [end])).astype(disjoint.dtype).reshape(-1, 2)
    return edges[edges[:, 1] > edges[:, 0]]
