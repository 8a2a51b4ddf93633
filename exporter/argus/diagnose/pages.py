"""One exposition page for each recorded iteration, through real segments and the real exporter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from argus._native import Segment
from argus.exporter.exposition import text
from argus.exporter.exposition.classic import Classic
from argus.exporter.registry import Registry
from argus.exporter.sources import MemorySource
from argus.replay.feed import Feed, anonymous, recorded_world_size
from argus.traces import Accountant, RankIteration, Table

BEAT = "argus_replay_beat"
"""Gauge on every page: number of the page, from 1."""

_UNREAD_BY_RULES = ("phases", "tracer")
_MISSED_ITERATIONS = 1
"""A rank that lacks more than so many of the last iterations is not shown: nothing frozen may accuse."""


class Pages:
    """Pages of a table's iterations, made one by one.

    The clock is virtual: the iterations follow each other without a gap, and an
    iteration ends for all ranks when the slowest has ended it.
    """

    def __init__(
        self, table: Table, watch: Callable[[int, Iterable[RankIteration]], None] = lambda number, ranks: None
    ) -> None:
        """``watch`` is given every iteration's number and ranks as they pass."""
        self._table = table
        self._watch = watch
        self._now_ns = 1
        self._fed: dict[int, int] = {}
        self._number = 0
        self._feed = Feed(table, anonymous, recorded_world_size(table))
        self._registry = Registry(MemorySource(self._shown), disabled=_UNREAD_BY_RULES)

    def close(self) -> None:
        """Let go of the segments."""
        self._feed.close()

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        """(iteration, page), in order."""
        accountant = Accountant(self._table)
        for number, rows in self._table:
            self._number += 1
            ranks = list(accountant.ranks(number, rows))
            self._now_ns += max(1, round(max(rank.wall for rank in ranks) * 1e9))
            self._feed.feed(ranks, self._now_ns)
            self._fed.update((rank.rank, self._number) for rank in ranks)
            self._watch(number, ranks)
            yield number, text.encode(self._registry.collect(self._now_ns), classic=Classic.NONE)

    def _shown(self) -> list[Segment]:
        oldest = self._number - _MISSED_ITERATIONS
        return [self._feed.ranks[rank].segment for rank, fed in sorted(self._fed.items()) if fed >= oldest]


def numbered(page: bytes, beat: int) -> bytes:
    """The page with its number."""
    return page + f"# TYPE {BEAT} gauge\n{BEAT} {beat}\n".encode()
