"""What a rank with everything on exports besides what the drill's model knows: kernels, sources of the tracer.

The durations of kernels follow the rank's phases; how many there are, and how they are spread, is drawn.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from argus import catalogue
from argus.drill.fleet import FleetRank
from argus.drill.timing import Iteration
from argus.exporter.collectors.labels import rank_labels
from argus.exporter.exposition.families import Histogram, Point, Summary
from argus.exporter.sources import Rank
from argus.segment import layout

_CLASSES = {
    # Typical seconds, kernels of an iteration, the phase whose speed they have.
    "gemm": (400e-6, 1200, "mlp"),
    "attention": (300e-6, 300, "attention"),
    "normalization": (40e-6, 600, "attention"),
    "elementwise": (30e-6, 2400, "backward"),
    "reduction": (20e-6, 300, "backward"),
    "optimizer": (800e-6, 60, "optimizer"),
    "moe": (60e-6, 600, "mlp"),
    "memcpy": (15e-6, 200, "backward"),
    "communication_send_recv": (2e-3, 60, "backward"),
    "communication_reduce_scatter": (20e-3, 8, "backward"),
}
_SPREAD = 0.3
"""Standard deviation of the logarithm of a class's durations."""
_QUANTILES = np.exp(_SPREAD * np.array([0.0, 1.2816, 2.3263]))
"""Of the standard normal distribution at 0.5, 0.9 and 0.99."""
_SOURCES = ("phases", "kernels", "nccl")

_BUCKETS = layout.CONSTANTS["HISTOGRAM_BUCKETS"]


def _shape(seconds: float) -> np.ndarray:
    """Share of a class's kernels in each bucket of the segment's histograms (bounds 2^(-20 + i/8) s)."""
    bounds = layout.CONSTANTS["HISTOGRAM_MIN_EXPONENT"] + np.arange(_BUCKETS) / 8
    distance = (bounds * np.log(2) - np.log(seconds)) / _SPREAD
    weight = np.exp(-(distance**2) / 2)
    return weight / weight.sum()


_SHAPES = {name: _shape(seconds) for name, (seconds, _, _) in _CLASSES.items()}


class Beside:
    """These points for the ranks of one node."""

    def __init__(self, seed: int, ranks: list[FleetRank]) -> None:
        self._places = {rank.rank: (rank._stage, rank._lane) for rank in ranks}
        self._random = {rank.rank: np.random.default_rng([seed, 2, rank.rank]) for rank in ranks}
        self._first: Iteration | None = None
        self._now: Iteration | None = None
        self._iterations = 0

    def iterate(self, iteration: Iteration) -> None:
        """An iteration has ended."""
        self._first = self._first or iteration
        self._now = iteration
        self._iterations += 1

    def collect(self, rank: Rank) -> Iterator[Point]:
        """A collector of the exporter's registry."""
        labels = rank_labels(rank.state)
        number, n = rank.state.identity.rank, self._iterations
        if self._first is None or self._now is None:
            return
        place, random = self._places[number], self._random[number]
        for name, (typical, count, phase) in _CLASSES.items():
            slower = float(self._now.phases[phase][place] / self._first.phases[phase].mean())
            one = typical * slower * random.lognormal(0, 0.01)
            total = Histogram(np.rint(_SHAPES[name] * count * n).astype(np.uint64), count * n * typical)
            yield Point(catalogue.KERNEL_SECONDS, (*labels, name), total)
            quantiles = tuple(round(float(q), 9) for q in one * _QUANTILES)
            yield Point(
                catalogue.WINDOW_KERNEL_SECONDS, (*labels, name), Summary(quantiles, total.sum, count * n)
            )
        yield Point(catalogue.KERNEL_ATTRIBUTION, (*labels, "memset"), 1)
        for source in _SOURCES:
            own = (*labels, source)
            yield Point(catalogue.TRACER_ENABLED, own, 1)
            yield Point(catalogue.TRACER_EVENTS, own, n * 5000)
            yield Point(catalogue.TRACER_DROPPED, own, 0)
            yield Point(catalogue.TRACER_COST, own, round(n * 5000 * 50e-9, 9))
            yield Point(catalogue.TRACER_AGE, own, round(float(random.uniform(0, 0.1)), 3))
        yield Point(catalogue.TRACER_GAP, (*labels, "kernels"), 0)
        yield Point(catalogue.TRACER_LOST, (*labels, "kernels"), 0)
        yield Point(catalogue.TRACER_MEMORY, (*labels, "kernels"), 8 << 20)
