"""How far a rank is."""

from __future__ import annotations

from collections.abc import Iterator

from argus import catalogue
from argus.exporter.collectors.labels import histogram, rank_labels, seconds_since
from argus.exporter.exposition.families import Point
from argus.exporter.sources import Rank


def collect(rank: Rank) -> Iterator[Point]:
    """The last iteration, its age, and the histogram of all; nothing before the first."""
    state = rank.state
    if not rank.up or state.last_iteration is None:
        return
    labels = rank_labels(state)
    yield Point(catalogue.ITERATION, labels, state.last_iteration)
    age = seconds_since(state.last_iteration_end_ns, state.now_ns)
    yield Point(catalogue.ITERATION_AGE, labels, age)
    if state.iteration_seconds is not None:
        yield Point(catalogue.ITERATION_SECONDS, labels, histogram(state.iteration_seconds))
