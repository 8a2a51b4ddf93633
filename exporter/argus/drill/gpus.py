"""The GPUs of a drill's ranks, one each: clocks and heat of the model, told as NVML's would be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from uuid import UUID

import numpy as np

from argus import catalogue
from argus.drill.conditions import Floats
from argus.exporter.exposition.families import Point
from argus.exporter.sources import Rank
from argus.hardware.reading import Gpu, Reading, Status, Value, points

CLOCK = 1.83e9
_USUAL, _LIMIT = 62.0, 92.0
"""Temperatures of a busy GPU and of one that slows itself down, degrees Celsius."""


def uuid(rank: int) -> str:
    """Of the GPU that a modelled rank uses."""
    return f"GPU-{UUID(int=rank)}"


class ModelledGpus:
    """What the exporter's registry reads in the place of NVML (``argus.exporter.registry.GpuSource``).

    Args:
        ranks: How many there are.
        shown: Those whose GPUs this exporter sees; None: all.
    """

    present = True

    def __init__(self, ranks: int, shown: Iterable[int] | None = None) -> None:
        self.clocks: Floats = np.ones(ranks)
        self.throttled: Floats = np.zeros(ranks)
        self._shown = range(ranks) if shown is None else list(shown)

    def pass_time(self, ranks: range, clocks: Floats, seconds: Floats) -> None:
        """These ranks computed at these shares of the usual clock, for so long (arrays over all ranks)."""
        own = slice(ranks.start, ranks.stop)
        self.clocks[own] = clocks[own]
        self.throttled[own] += np.where(clocks[own] < 1.0, seconds[own], 0.0)

    def of(self, shown: Iterable[int]) -> ModelledGpus:
        """The same GPUs, as the exporter of a node that has only these sees them."""
        part = ModelledGpus(0, shown)
        part.clocks, part.throttled = self.clocks, self.throttled
        return part

    def points(self, ranks: Iterable[Rank]) -> Iterator[Point]:
        """Their series."""
        return points(map(self._status, self._shown), ranks)

    def check(self) -> Iterator[Point]:
        """All is well with them."""
        return iter(())

    def _status(self, rank: int) -> Status:
        clock, hot = float(self.clocks[rank]), bool(self.clocks[rank] < 1.0)
        values = (
            Value(catalogue.GPU_CLOCK, ("sm",), CLOCK * clock),
            Value(catalogue.GPU_CLOCK_MAX, ("sm",), CLOCK),
            Value(catalogue.GPU_THROTTLE, ("thermal",), float(self.throttled[rank])),
            Value(catalogue.GPU_TEMPERATURE, ("gpu",), _LIMIT if hot else _USUAL),
            Value(catalogue.GPU_TEMPERATURE_LIMIT, ("gpu",), _LIMIT),
        )
        return Status(Gpu(rank, uuid(rank), model="modelled"), 0.0, Reading(0.0, values), True)
