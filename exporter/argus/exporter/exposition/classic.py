"""Which histograms carry classic buckets, and where those end."""

from __future__ import annotations

from enum import Enum

from argus import catalogue
from argus.catalogue import Metric

EXPONENTS = tuple(range(-10, 13, 2))
"""Bucket bounds are 2**k seconds: about 1 ms to 4,096 s, two octaves apart."""

ITERATION_EXPONENTS = tuple(range(-4, 9, 2))
"""The part of them that iterations fall into: 62.5 ms to 256 s."""


class Classic(Enum):
    """Choice of classic buckets.

    Each bucket is a series of its own in Prometheus: in text, those of every phase, collective and
    class of kernels are most of all series, so that only iterations have them by default.  Over
    protobuf they are free: a Prometheus that reads the native buckets drops the classic ones, and
    one that does not would lose a histogram that has none.
    """

    ITERATIONS = "iterations"
    ALL = "all"
    NONE = "none"

    def in_text(self, metric: Metric) -> tuple[int, ...]:
        """Exponents of the bounds of a histogram in the text formats; besides, there is ``+Inf``."""
        if self is Classic.ITERATIONS:
            return ITERATION_EXPONENTS if metric is catalogue.ITERATION_SECONDS else ()
        return EXPONENTS if self is Classic.ALL else ()

    def in_protobuf(self) -> tuple[int, ...]:
        """The same over protobuf, for every histogram."""
        return () if self is Classic.NONE else EXPONENTS
