"""Who a rank is and whether it is alive: all that is said of a dead one."""

from __future__ import annotations

from collections.abc import Iterator

from argus import catalogue
from argus.exporter.collectors.labels import rank_labels
from argus.exporter.exposition.families import Point
from argus.exporter.sources import Rank


def _known(number: int) -> str:
    return str(number) if number >= 0 else ""


def collect(rank: Rank) -> Iterator[Point]:
    """Identity, liveness, size and attempt of the run."""
    who = rank.state.identity
    labels = rank_labels(rank.state)
    coordinates = (who.dp, who.tp, who.pp, who.cp, who.ep)
    place = (who.node, _known(who.local_rank), who.gpu_uuid, who.pci_bus_id)
    yield Point(catalogue.RANK_INFO, labels + place + tuple(map(_known, coordinates)), 1)
    yield Point(catalogue.RANK_UP, labels, int(rank.up))
    if who.world_size > 0:
        yield Point(catalogue.WORLD_SIZE, labels, who.world_size)
    if who.attempt >= 0:
        yield Point(catalogue.ATTEMPT, labels, who.attempt)
