"""What of its series the exporter serves: all, or those that somebody reads who judges.

``READ`` is the one place that says which these are: what the shipped rules read, queries of their
annotations included, what ``argus report`` asks for, and what ``argus doctor`` looks at.  A test
compares it with the rules' own selectors, both ways.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cache

from argus import catalogue
from argus.catalogue import Metric
from argus.exporter.exposition.families import Point, Summary


class Series(Enum):
    """Choice of series, ``--series``."""

    ALL = "all"
    RULES = "rules"


@dataclass(frozen=True)
class Read:
    """Series of one metric that are read.

    Attributes:
        labels: Regular expressions that labels match in full; others may be anything.
        quantiles: Of a summary.
        totals: Whether ``_sum`` and ``_count`` of a summary are read.
    """

    labels: Mapping[str, str] = field(default_factory=dict)
    quantiles: tuple[str, ...] = ()
    totals: bool = False


_ALL = Read()
_OF_A_RANK = Read({"rank": ".+"})
_WORKING = "compute|host"

READ: Mapping[Metric, tuple[Read, ...]] = {
    catalogue.RANK_INFO: (_ALL,),
    catalogue.RANK_UP: (_ALL,),
    catalogue.WORLD_SIZE: (_ALL,),
    catalogue.ATTEMPT: (_ALL,),
    catalogue.ITERATION: (_ALL,),
    catalogue.ITERATION_AGE: (_ALL,),
    catalogue.PHASE_DATA_DEPENDENT: (_ALL,),
    catalogue.PHASE_OPEN: (_ALL,),
    catalogue.COLLECTIVE_MEMBERS: (_ALL,),
    catalogue.COLLECTIVE_NODES: (_ALL,),
    # State completed for the runbook of a hang, in which alone there are any.
    catalogue.COLLECTIVE_SEQUENCE: (_ALL,),
    catalogue.CPU_SAMPLES: (_ALL,),
    catalogue.WINDOW_ITERATIONS: (_ALL,),
    # Totals for L3, which reckons with them what a class of kernels is worth.
    catalogue.WINDOW_ITERATION_SECONDS: (Read(quantiles=("0.5", "1.0"), totals=True),),
    catalogue.WINDOW_BUSY_SECONDS: (Read(quantiles=("0.5", "1.0")),),
    catalogue.WINDOW_PHASE_SECONDS: (
        Read({"kind": _WORKING}, ("0.0", "0.5", "1.0")),
        Read({"kind": "communication|mixed"}, ("0.5",)),
    ),
    catalogue.WINDOW_WORK: (_ALL,),
    catalogue.WINDOW_WORK_SECONDS: (Read(quantiles=("0.0", "0.5")),),
    catalogue.WINDOW_COLLECTIVE_SECONDS: (Read(quantiles=("0.0", "0.5")),),
    catalogue.WINDOW_COLLECTIVE_OCCURRENCES: (_ALL,),
    catalogue.WINDOW_COLLECTIVE_BANDWIDTH: (_ALL,),
    catalogue.WINDOW_KERNEL_SECONDS: (
        Read({"kernel_class": r"(?!communication_|other$).+"}, ("0.5", "0.9", "0.99"), totals=True),
    ),
    catalogue.TRACER_ENABLED: (_ALL,),
    catalogue.TRACER_EVENTS: (_ALL,),
    catalogue.TRACER_DROPPED: (_ALL,),
    catalogue.TRACER_GAP: (_ALL,),
    catalogue.GPU_UP: (_OF_A_RANK,),
    catalogue.GPU_CLOCK: (Read({"rank": ".+", "clock": "sm"}),),
    catalogue.GPU_THROTTLE: (
        Read({"rank": ".+", "reason": "power|power_brake|board_limit|reliability|thermal|hw_thermal"}),
    ),
    catalogue.GPU_ECC: (Read({"rank": ".+", "severity": "uncorrected", "lifetime": "volatile"}),),
    catalogue.GPU_REMAP_PENDING: (_OF_A_RANK,),
    catalogue.GPU_REMAP_FAILED: (_OF_A_RANK,),
    catalogue.GPU_XID_AGE: (Read({"rank": ".+", "xid": "48|63|64|74|92|94|95|140"}),),
    catalogue.GPU_PCIE_GENERATION: (_OF_A_RANK,),
    catalogue.GPU_PCIE_GENERATION_MAX: (_OF_A_RANK,),
    catalogue.GPU_PCIE_LANES: (_OF_A_RANK,),
    catalogue.GPU_PCIE_LANES_MAX: (_OF_A_RANK,),
    catalogue.GPU_PCIE_REPLAYS: (_OF_A_RANK,),
    catalogue.GPU_NVLINKS: (Read({"rank": ".+", "state": "active"}),),
    catalogue.GPU_NVLINK_ERRORS: (_OF_A_RANK,),
    catalogue.GPU_PROCESSES: (_OF_A_RANK,),
    catalogue.RANKS_ENDED: (_ALL,),
    catalogue.COLLECTOR_SUCCESS: (_ALL,),
    catalogue.SEGMENTS: (_ALL,),
    catalogue.BUILD_INFO: (_ALL,),
}


def select(points: Iterable[Point], series: Series) -> Iterable[Point]:
    """The points that are served."""
    return points if series is Series.ALL else _read(points)


def _read(points: Iterable[Point]) -> Iterator[Point]:
    for metric, labels, value in points:
        for read, matches in _matching(metric):
            if all(pattern.fullmatch(labels[index]) for index, pattern in matches):
                if isinstance(value, Summary):
                    value = _part(metric, value, read)
                yield Point(metric, labels, value)
                break


_Matches = tuple[tuple[int, re.Pattern[str]], ...]


@cache
def _matching(metric: Metric) -> tuple[tuple[Read, _Matches], ...]:
    """What is read of a metric, with the positions of the labels that decide."""
    return tuple(
        (read, tuple((metric.labels.index(name), re.compile(text)) for name, text in read.labels.items()))
        for read in READ.get(metric, ())
    )


def _part(metric: Metric, value: Summary, read: Read) -> Summary:
    """What is read of a summary."""
    quantiles = zip(metric.quantiles, value.quantiles, strict=True)
    chosen = tuple(number if name in read.quantiles else None for name, number in quantiles)
    return replace(value, quantiles=chosen, totals=read.totals)
