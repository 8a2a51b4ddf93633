"""What the tracer inside the rank says about itself."""

from __future__ import annotations

from collections.abc import Iterator

from argus import catalogue
from argus.exporter.collectors.labels import rank_labels, seconds_since
from argus.exporter.exposition.families import Point
from argus.exporter.sources import Rank


def collect(rank: Rank) -> Iterator[Point]:
    """Per source: whether it records; events, drops, own cost, age of the last event where it counts them."""
    if not rank.up:
        return
    for source in rank.state.sources:
        labels = (*rank_labels(rank.state), source.name)
        yield Point(catalogue.TRACER_ENABLED, labels, int(source.enabled))
        if not (source.last_event_ns or source.events or source.dropped):
            continue
        yield Point(catalogue.TRACER_EVENTS, labels, source.events)
        yield Point(catalogue.TRACER_DROPPED, labels, source.dropped)
        yield Point(catalogue.TRACER_COST, labels, source.cost_ns / 1e9)
        if source.last_event_ns:
            age = seconds_since(source.last_event_ns, rank.state.now_ns)
            yield Point(catalogue.TRACER_AGE, labels, age)
