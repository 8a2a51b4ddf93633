"""Metric families as the collectors build them, before any format."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from argus import catalogue
from argus.catalogue import Metric


@dataclass(frozen=True)
class Histogram:
    """Cumulative observations in the segment's exponential buckets.

    Attributes:
        counts: Observations per bucket, shape (258,), see ``argus_histogram`` in the layout.
        sum: Seconds.
    """

    counts: npt.NDArray[np.uint64]
    sum: float


@dataclass(frozen=True)
class Summary:
    """Quantiles of a window with the cumulative sum and count beside them.

    Attributes:
        quantiles: Values in the order of the metric's ``quantiles``; None where one is not served.
        sum: Seconds since the rank began.
        count: Observations since the rank began.
        totals: Whether sum and count are served.
    """

    quantiles: tuple[float | None, ...]
    sum: float
    count: int
    totals: bool = True


Value: TypeAlias = "float | Histogram | Summary"


class Point(NamedTuple):
    """One series (or one summary or histogram) as a collector yields it.

    Attributes:
        metric: Its catalogue entry.
        labels: Values of ``metric.labels``, in that order.
        value: A number for gauges and counters.
    """

    metric: Metric
    labels: tuple[str, ...]
    value: Value


@dataclass
class Family:
    """All series of one metric."""

    metric: Metric
    series: list[tuple[tuple[str, ...], Value]] = field(default_factory=list)


_ORDER = {metric.name: position for position, metric in enumerate(catalogue.METRICS)}


def group(points: Iterable[Point]) -> list[Family]:
    """Group points into families, in the catalogue's order and then in order of appearance.

    A series that appears twice would make Prometheus reject the whole scrape: the first one stands.
    """
    families: dict[str, Family] = {}
    seen: set[tuple[str, tuple[str, ...]]] = set()
    for metric, labels, value in points:
        key = (metric.name, labels)
        if key in seen:
            continue
        seen.add(key)
        family = families.get(metric.name)
        if family is None:
            family = families[metric.name] = Family(metric)
        family.series.append((labels, value))
    return sorted(families.values(), key=lambda family: _ORDER.get(family.metric.name, len(_ORDER)))
