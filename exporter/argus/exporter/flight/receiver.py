"""From an alert to a snapshot of the ranks it accuses and of two that are well.

Every exporter sees its own node only: accused ranks that are elsewhere are the
business of the exporter there, which Alertmanager has to be told of as well.
The peers are of this node and of the accused rank's role, so that all times in
a snapshot are of one clock.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from statistics import median

from argus import _native, catalogue
from argus.exporter.exposition.families import Point
from argus.exporter.flight.alerts import Accusation, accusations
from argus.exporter.flight.store import Store
from argus.exporter.sources import Rank, RankSource, merge
from argus.flight.model import RankTrace
from argus.flight.perfetto.write import encode
from argus.flight.recording import trace
from argus.flight.select import record_keys

_LOG = logging.getLogger(__name__)

PEERS = 2
_MOST_ACCUSED = 16
_MOST_PER_INTERVAL = 6
"""Snapshots within one interval, whatever alerts come: they cost time, and push out older ones."""
_PATIENCE_S = 10.0
OUTCOMES = ("written", "limited", "failed")
"""``limited``: the same alert was there shortly before, or too many others."""


class BusyError(Exception):
    """Another snapshot is taking long."""


class Receiver:
    """Takes deliveries, writes snapshots.

    Args:
        sources: Where ranks are.
        store: Where snapshots go.
        interval_s: For so long the same alert about the same rank does not lead to another one.
    """

    def __init__(self, sources: Sequence[RankSource], store: Store, interval_s: float) -> None:
        self.store = store
        self._sources = sources
        self._interval_s = interval_s
        self._lock = threading.Lock()
        self._outcomes = dict.fromkeys(OUTCOMES, 0)
        self._seen: dict[Accusation, float] = {}
        self._written: list[float] = []

    def deliver(self, body: bytes) -> list[str]:
        """Do what a delivery asks for; what was done, in words.

        Raises:
            PayloadError: It is no delivery of Alertmanager's.
            BusyError: It has to come again later.
        """
        named = accusations(body)
        if not self._lock.acquire(timeout=_PATIENCE_S):
            raise BusyError
        try:
            return list(self._deliver(named))
        finally:
            self._lock.release()

    def points(self) -> Iterator[Point]:
        """The receiver's own metrics."""
        for outcome, count in self._outcomes.items():
            yield Point(catalogue.SNAPSHOTS, (outcome,), count)
        kept = self.store.kept()
        yield Point(catalogue.SNAPSHOTS_KEPT, (), len(kept))
        yield Point(catalogue.SNAPSHOTS_BYTES, (), sum(each.bytes for each in kept))

    def _deliver(self, named: list[Accusation]) -> Iterator[str]:
        now_ns = _native.monotonic_ns()
        ranks = merge(source.scan(now_ns) for source in self._sources).ranks if named else []
        here = {(rank.state.identity.run_id, rank.state.identity.rank) for rank in ranks}
        local = [each for each in named if (each.run_id, each.rank) in here]
        if not local:
            yield "no firing alert names a rank of this node"
        for run_id in dict.fromkeys(each.run_id for each in local):
            yield self._one_run([each for each in local if each.run_id == run_id], ranks, now_ns)

    def _one_run(self, named: list[Accusation], ranks: list[Rank], now_ns: int) -> str:
        now = time.monotonic()
        self._forget(now)
        fresh = [each for each in named if each not in self._seen]
        if not fresh or len(self._written) >= _MOST_PER_INTERVAL:
            self._outcomes["limited"] += 1
            return f"run {named[0].run_id!r}: no snapshot, the last is less than {self._interval_s:.0f} s old"
        self._seen |= dict.fromkeys(named, now)
        self._written.append(now)
        try:
            name = self._write(fresh[0], named, ranks, now_ns)
        except Exception as error:  # whatever it is, alerts go on being delivered
            self._outcomes["failed"] += 1
            _LOG.error("no snapshot for %s in %s: %s", fresh[0].alert, self.store.directory, error)
            return f"run {named[0].run_id!r}: no snapshot: {error}"
        self._outcomes["written"] += 1
        _LOG.info("%s: wrote %s", fresh[0].alert, self.store.directory / name)
        return f"run {named[0].run_id!r}: wrote {name}"

    def _forget(self, now: float) -> None:
        self._seen = {each: then for each, then in self._seen.items() if now - then < self._interval_s}
        self._written = [then for then in self._written if now - then < self._interval_s]

    def _write(self, first: Accusation, named: list[Accusation], ranks: list[Rank], now_ns: int) -> str:
        why = {each.rank: each.alert for each in reversed(named)}
        accused = [
            rank
            for rank in ranks
            if rank.state.identity.run_id == first.run_id and rank.state.identity.rank in why
        ][:_MOST_ACCUSED]
        roles = {rank.state.identity.role for rank in accused}
        others = [peer for role in sorted(roles) for peer in peers(ranks, first.run_id, role, why)]
        keys = [rank.state.identity.key for rank in (*accused, *others)]
        traces = [_explained(trace(each), why) for each in record_keys(self._sources, keys, now_ns)]
        numbers = [rank.state.identity.rank for rank in accused]
        return self.store.add(first.alert, first.run_id, numbers, encode(traces))


def _explained(each: RankTrace, why: dict[int, str]) -> RankTrace:
    note = f"accused: {why[each.rank]}" if each.rank in why else "not accused, for comparison"
    return replace(each, notes=(note, *each.notes))


def peers(ranks: Iterable[Rank], run_id: str, role: str, accused: Iterable[int]) -> list[Rank]:
    """Ranks of a role that are alive and not accused: those that work most like their median."""
    blamed = frozenset(accused)
    well = [
        rank
        for rank in ranks
        if rank.up
        and rank.state.identity.run_id == run_id
        and rank.state.identity.role == role
        and rank.state.identity.rank not in blamed
    ]
    busy = {}
    for rank in well:
        window = rank.state.window()
        if window is not None and window.busy is not None:
            busy[rank.state.identity.rank] = window.busy.typical
    middle = median(busy.values()) if busy else 0.0
    never = float("inf")

    def distance(rank: Rank) -> tuple[float, int]:
        number = rank.state.identity.rank
        return abs(busy.get(number, never) - middle), number

    return sorted(well, key=distance)[:PEERS]
