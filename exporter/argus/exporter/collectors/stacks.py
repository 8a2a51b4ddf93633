"""Samples of the training thread's stack, by what it was busy with."""

from __future__ import annotations

from collections.abc import Iterator

from argus import catalogue
from argus.exporter.collectors.labels import rank_labels
from argus.exporter.exposition.families import Point
from argus.exporter.sources import Rank


def collect(rank: Rank) -> Iterator[Point]:
    """Categories that occurred."""
    if not rank.up:
        return
    for category, count in rank.state.cpu_samples.items():
        if count:
            yield Point(catalogue.CPU_SAMPLES, (*rank_labels(rank.state), category), count)
