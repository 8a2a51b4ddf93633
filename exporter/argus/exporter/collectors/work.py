"""Work done, as the training script reports it."""

from __future__ import annotations

from collections.abc import Iterator

from argus import catalogue
from argus.exporter.collectors.labels import rank_labels
from argus.exporter.exposition.families import Point
from argus.exporter.sources import Rank


def collect(rank: Rank) -> Iterator[Point]:
    """Units processed, by phase where they were reported for one."""
    if rank.up:
        labels = rank_labels(rank.state)
        for work in rank.state.work:
            yield Point(catalogue.WORK, (*labels, work.unit, work.phase), work.total)
