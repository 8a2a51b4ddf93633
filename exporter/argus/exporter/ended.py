"""Ranks that ended cleanly, counted by run for a while after the run has left this node."""

from __future__ import annotations

from collections.abc import Container, Set

from argus.segment.state import RankKey

_MOST_RUNS = 256


class EndedRanks:
    """Counts clean ends by run.

    Args:
        retention_ns: How long a run's count stays after its last rank left this node.
    """

    def __init__(self, retention_ns: int) -> None:
        self._retention_ns = retention_ns
        self.added = 0
        """How often a rank ended, ever."""
        self._ranks: dict[str, set[RankKey]] = {}
        self._left_ns: dict[str, int] = {}

    def add(self, key: RankKey, now_ns: int) -> None:
        """A rank ended cleanly."""
        self.added += 1
        if key.run_id not in self._ranks and len(self._ranks) >= _MOST_RUNS:
            oldest = min(self._left_ns, key=self._left_ns.__getitem__)
            del self._ranks[oldest], self._left_ns[oldest]
        self._ranks.setdefault(key.run_id, set()).add(key)
        self._left_ns[key.run_id] = now_ns

    def forget(self, present: Container[RankKey]) -> None:
        """Ranks that are here again have not ended."""
        for ranks in self._ranks.values():
            ranks.difference_update([key for key in ranks if key in present])

    def counts(self, running: Set[str], now_ns: int) -> dict[str, int]:
        """Ended ranks by run_id; ``running`` are the runs that still have ranks on this node."""
        for run_id in list(self._ranks):
            if run_id in running:
                self._left_ns[run_id] = now_ns
            elif now_ns - self._left_ns[run_id] >= self._retention_ns:
                del self._ranks[run_id], self._left_ns[run_id]
        return {run_id: len(ranks) for run_id, ranks in sorted(self._ranks.items()) if ranks}
