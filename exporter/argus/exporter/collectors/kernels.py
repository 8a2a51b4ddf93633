"""GPU kernels by class, and how well they could be traced."""

from __future__ import annotations

from collections.abc import Iterator

from argus import catalogue
from argus.exporter.collectors.labels import histogram, rank_labels
from argus.exporter.exposition.families import Point, Summary
from argus.exporter.sources import Rank

SOURCE = "kernels"

LEAST_SHARE = 0.005
"""Of a rank's iterations: what a class must take for its window to be told.  L3 asks for four times
as much (threshold ``kernel_floor``)."""


def worth_a_window(kernels: float, iterations: float) -> bool:
    """Whether a class of kernels is; both since the rank began, in the same unit."""
    return kernels >= LEAST_SHARE * iterations


def collect(rank: Rank) -> Iterator[Point]:
    """Durations per class, in all and over the window; attribution, gaps, memory, lost iterations."""
    device = rank.state.device
    if not rank.up or device is None:
        return
    labels = rank_labels(rank.state)
    for each in device.classes:
        seconds = each.seconds
        if not seconds.count:
            continue
        yield Point(catalogue.KERNEL_SECONDS, (*labels, each.name), histogram(seconds))
        if each.window_count and worth_a_window(seconds.sum_ns, rank.state.iteration_sum_ns):
            quantiles = tuple(value / 1e9 for value in each.window_ns)
            yield Point(
                catalogue.WINDOW_KERNEL_SECONDS,
                (*labels, each.name),
                Summary(quantiles, seconds.sum_ns / 1e9, seconds.count),
            )
    yield Point(catalogue.KERNEL_ATTRIBUTION, (*labels, device.attribution), 1)
    yield Point(catalogue.TRACER_GAP, (*labels, SOURCE), device.gap_ns / 1e9)
    yield Point(catalogue.TRACER_LOST, (*labels, SOURCE), device.incomplete)
    yield Point(catalogue.TRACER_MEMORY, (*labels, SOURCE), device.memory)
