"""Classic and native buckets of the segment's exponential histograms."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from argus.segment.layout import CONSTANTS

Indices: TypeAlias = "npt.NDArray[np.intp]"

SCHEMA: int = CONSTANTS["HISTOGRAM_SCHEMA"]
_MIN_EXPONENT: int = CONSTANTS["HISTOGRAM_MIN_EXPONENT"]
_MAX_EXPONENT: int = CONSTANTS["HISTOGRAM_MAX_EXPONENT"]
_PER_OCTAVE = 1 << SCHEMA
ZERO_THRESHOLD = 2.0**_MIN_EXPONENT
"""Seconds; bucket 0 of a segment's histogram is the zero bucket of the native one."""


class Native(NamedTuple):
    """Positive buckets of a native histogram in Prometheus's sparse form.

    Attributes:
        spans: (offset, length): offset of the first from bucket 0 = (2**(-1/8), 1] s, then gaps.
        deltas: Difference of each bucket's count from the one before.
    """

    spans: list[tuple[int, int]]
    deltas: list[int]


def classic_bounds(exponents: Sequence[int]) -> tuple[float, ...]:
    """Upper bounds in seconds; ValueError outside the exponents that a segment resolves."""
    if any(not _MIN_EXPONENT <= k <= _MAX_EXPONENT for k in exponents) or any(
        a >= b for a, b in pairwise(exponents)
    ):
        raise ValueError(f"classic buckets need rising exponents in {_MIN_EXPONENT}…{_MAX_EXPONENT}")
    return tuple(2.0**k for k in exponents)


def classic_index(exponents: Sequence[int]) -> Indices:
    """Index of the segment's bucket that ends at 2**k seconds, for each exponent."""
    return np.array([(k - _MIN_EXPONENT) * _PER_OCTAVE for k in exponents], dtype=np.intp)


def cumulative(counts: npt.NDArray[np.uint64], index: Indices) -> tuple[list[int], int]:
    """Observations at or below each classic bound, and in all."""
    running = counts.cumsum()
    return running[index].tolist(), int(running[-1])


def native(counts: npt.NDArray[np.uint64]) -> Native:
    """Positive native buckets.

    What lies above the segment's last bound (2**12 s) is put into the first native bucket above it.
    """
    used = (np.flatnonzero(counts[1:]) + 1).tolist()
    spans: list[tuple[int, int]] = []
    deltas: list[int] = []
    expected = 0
    last = 0
    for bucket in used:
        index = bucket + _MIN_EXPONENT * _PER_OCTAVE
        if spans and index == expected:
            offset, length = spans[-1]
            spans[-1] = (offset, length + 1)
        else:
            spans.append((index - expected, 1))
        expected = index + 1
        count = int(counts[bucket])
        deltas.append(count - last)
        last = count
    return Native(spans, deltas)
