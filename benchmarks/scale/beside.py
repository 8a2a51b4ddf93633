"""What a rank with everything on exports that the drill's model does not know.

Kernels by class (their durations follow the rank's phases), sources of the tracer, a healthy GPU.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from argus import catalogue
from argus.drill.fleet import FleetRank
from argus.drill.timing import Iteration
from argus.exporter.collectors.kernels import worth_a_window
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

_THROTTLE = ("power", "thermal", "sync_boost", "board_limit", "reliability", "hw_thermal", "power_brake")

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
        self._usual: dict[str, float] = {}
        self._now: Iteration | None = None
        self._iterations = 0

    def iterate(self, iteration: Iteration) -> None:
        """An iteration has ended."""
        if not self._usual:
            self._usual = {name: float(seconds.mean()) for name, seconds in iteration.phases.items()}
        self._now = iteration
        self._iterations += 1

    def collect(self, rank: Rank) -> Iterator[Point]:
        """A collector of the exporter's registry."""
        labels = rank_labels(rank.state)
        number, n = rank.state.identity.rank, self._iterations
        if self._now is None:
            return
        place, random = self._places[number], self._random[number]
        for name, (typical, count, phase) in _CLASSES.items():
            slower = float(self._now.phases[phase][place]) / self._usual[phase]
            one = typical * slower * random.lognormal(0, 0.01)
            total = Histogram(np.rint(_SHAPES[name] * count * n).astype(np.uint64), count * n * typical)
            yield Point(catalogue.KERNEL_SECONDS, (*labels, name), total)
            if not worth_a_window(total.sum * 1e9, rank.state.iteration_sum_ns):
                continue
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
        yield from _gpu((*labels, f"GPU-{number:08x}-0000-0000-0000-000000000000"), n, random)


def _gpu(labels: tuple[str, ...], n: int, random: np.random.Generator) -> Iterator[Point]:
    """A healthy GPU at its ``n``-th iteration."""
    near = float(random.normal())
    yield Point(catalogue.GPU_UP, labels, 1)
    yield Point(catalogue.GPU_AGE, labels, round(2.5 + near, 3))
    for clock, hertz in (("sm", 1.755e9), ("memory", 2.619e9)):
        yield Point(catalogue.GPU_CLOCK, (*labels, clock), hertz + round(near) * 15e6 * (clock == "sm"))
        yield Point(catalogue.GPU_CLOCK_MAX, (*labels, clock), hertz * 1.13)
    for reason in _THROTTLE:
        yield Point(catalogue.GPU_THROTTLE, (*labels, reason), n * 0.02 if reason == "power" else 0)
    for sensor, celsius in (("gpu", 58), ("memory", 66)):
        yield Point(catalogue.GPU_TEMPERATURE, (*labels, sensor), celsius + round(near))
        yield Point(catalogue.GPU_TEMPERATURE_LIMIT, (*labels, sensor), celsius + 30)
    yield Point(catalogue.GPU_POWER, labels, round(610 + 20 * near, 3))
    yield Point(catalogue.GPU_POWER_LIMIT, labels, 700)
    yield Point(catalogue.GPU_ENERGY, labels, n * 1220.5)
    for severity in ("corrected", "uncorrected"):
        for lifetime in ("volatile", "aggregate"):
            yield Point(catalogue.GPU_ECC, (*labels, severity, lifetime), 0)
        yield Point(catalogue.GPU_REMAPPED_ROWS, (*labels, severity), 0)
    yield Point(catalogue.GPU_REMAP_PENDING, labels, 0)
    yield Point(catalogue.GPU_REMAP_FAILED, labels, 0)
    yield Point(catalogue.GPU_PCIE_GENERATION, labels, 5)
    yield Point(catalogue.GPU_PCIE_GENERATION_MAX, labels, 5)
    yield Point(catalogue.GPU_PCIE_LANES, labels, 16)
    yield Point(catalogue.GPU_PCIE_LANES_MAX, labels, 16)
    yield Point(catalogue.GPU_PCIE_REPLAYS, labels, 0)
    for state, count in (("active", 18), ("inactive", 0)):
        yield Point(catalogue.GPU_NVLINKS, (*labels, state), count)
    for error in ("replay", "recovery", "crc_flit", "crc_data"):
        yield Point(catalogue.GPU_NVLINK_ERRORS, (*labels, error), 0)
    yield Point(catalogue.GPU_UTILIZATION, labels, 1)
    yield Point(catalogue.GPU_PROCESSES, labels, 1)
