"""Collectors: small functions from one rank to its points.

A collector takes a rank and yields ``Point``s; the registry runs each one for
each rank on its own, so that a failure loses only that much.  What is unknown
is not yielded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from argus.exporter.collectors import (
    collectives,
    identity,
    iterations,
    kernels,
    phases,
    stacks,
    tracer,
    windows,
    work,
)
from argus.exporter.exposition.families import Point
from argus.exporter.sources import Rank

RankCollector: TypeAlias = Callable[[Rank], Iterable[Point]]

RANK_COLLECTORS: dict[str, RankCollector] = {
    "identity": identity.collect,
    "iterations": iterations.collect,
    "phases": phases.collect,
    "collectives": collectives.collect,
    "kernels": kernels.collect,
    "stacks": stacks.collect,
    "work": work.collect,
    "windows": windows.collect,
    "tracer": tracer.collect,
}
"""By name, as in ``argus_exporter_collector_success`` and ``--no-collector.<name>``."""
