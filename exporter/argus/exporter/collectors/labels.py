"""Label values that several collectors share."""

from __future__ import annotations

from argus.exporter.exposition.families import Histogram
from argus.segment.state import Durations, RankState


def rank_labels(state: RankState) -> tuple[str, str, str]:
    """Values of ``catalogue.RANK_LABELS``."""
    identity = state.identity
    return identity.run_id, identity.role, str(identity.rank)


def histogram(durations: Durations) -> Histogram:
    """A histogram in seconds."""
    return Histogram(durations.counts, durations.sum_ns / 1e9)


def seconds_since(then_ns: int, now_ns: int) -> float:
    """Age in seconds, never negative, in whole milliseconds (ages need no more and compress better)."""
    return round(max(now_ns - then_ns, 0) / 1e9, 3)
