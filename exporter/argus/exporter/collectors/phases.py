"""Phases: their histograms, and what is open now."""

from __future__ import annotations

from collections.abc import Iterator

from argus import catalogue
from argus.exporter.collectors.labels import histogram, rank_labels, seconds_since
from argus.exporter.exposition.families import Point
from argus.exporter.sources import Rank

OPEN_AFTER_S = 10.0


def collect(rank: Rank) -> Iterator[Point]:
    """Histograms and marks of phases that occurred, and the age of what has been open for long."""
    if not rank.up:
        return
    state = rank.state
    labels = rank_labels(state)
    for phase in state.phases:
        if phase.seconds.count:
            yield Point(catalogue.PHASE_SECONDS, (*labels, phase.name, phase.kind), histogram(phase.seconds))
            if phase.data_dependent:
                yield Point(catalogue.PHASE_DATA_DEPENDENT, (*labels, phase.name, phase.kind), 1)
    if state.open is not None:
        age = seconds_since(state.open.begin_ns, state.now_ns)
        if age > OPEN_AFTER_S:
            yield Point(catalogue.PHASE_OPEN, (*labels, state.open.name, state.open.kind), age)
