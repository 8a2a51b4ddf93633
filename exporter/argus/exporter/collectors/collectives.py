"""Collectives: histograms, payload, and the communicators that carry them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from argus import catalogue
from argus.exporter.collectors.labels import histogram, rank_labels
from argus.exporter.exposition.families import Point
from argus.exporter.sources import Rank
from argus.segment.state import Collective, RankState

STANDING_NS = 60_000_000_000
"""Sequence numbers tell who holds up a hang, which no rule calls so below a minute: until then they
would be series of which nobody reads one."""


def collect(rank: Rank) -> Iterator[Point]:
    """Per collective: histogram and bytes; per communicator: members, nodes, and where it stands."""
    if not rank.up:
        return
    labels = rank_labels(rank.state)
    communicators: dict[tuple[str, str], list[Collective]] = defaultdict(list)
    for collective in rank.state.collectives:
        communicators[collective.group, collective.group_id].append(collective)
        own = (*labels, collective.op, collective.group, collective.group_id)
        if collective.seconds.count:
            yield Point(catalogue.COLLECTIVE_SECONDS, own, histogram(collective.seconds))
        if collective.bytes:
            yield Point(catalogue.COLLECTIVE_BYTES, own, collective.bytes)
    standing = _stands(rank.state)
    for communicator, collectives in communicators.items():
        yield from _communicator((*labels, *communicator), collectives)
        if standing:
            yield from _sequence((*labels, *communicator), collectives)


def _stands(state: RankState) -> bool:
    """Whether the rank has completed no iteration for so long."""
    return state.now_ns - (state.last_iteration_end_ns or state.created_ns) > STANDING_NS


def _communicator(labels: tuple[str, ...], collectives: list[Collective]) -> Iterator[Point]:
    members = max(collective.members for collective in collectives)
    if members > 0:
        yield Point(catalogue.COLLECTIVE_MEMBERS, labels, members)
    nodes = max(collective.nodes for collective in collectives)
    if nodes > 0:
        yield Point(catalogue.COLLECTIVE_NODES, labels, nodes)


def _sequence(labels: tuple[str, ...], collectives: list[Collective]) -> Iterator[Point]:
    # Several operations share a communicator and its sequence: the furthest one tells.
    enqueued = max(collective.enqueued for collective in collectives)
    if enqueued:
        completed = max(collective.completed for collective in collectives)
        yield Point(catalogue.COLLECTIVE_SEQUENCE, (*labels, "enqueued"), enqueued)
        yield Point(catalogue.COLLECTIVE_SEQUENCE, (*labels, "completed"), completed)
