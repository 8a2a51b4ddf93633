"""py-spy's dumps of the ranks of a hung run, kept as text."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from argus import catalogue
from argus.exporter.exposition.families import Point
from argus.exporter.flight.store import Store
from argus.exporter.sources import Rank
from argus.exporter.stacks.hang import Hang
from argus.segment.beside import torch_record
from argus.segment.state import RankKey
from argus.stacks.dump import DEADLINE_S, DumpError, dump

_LOG = logging.getLogger(__name__)

MOST_RANKS = 8
"""Of one hang: whoever holds it up, as far as is known, and neighbours."""
_MOST_PER_HOUR = 12
_WHOLE_S = 3 * DEADLINE_S
OUTCOMES = ("written", "limited", "failed")
"""``failed``: of no rank there is a dump; the file says why."""
SUFFIX = ".txt"


@runtime_checkable
class ProcessSource(Protocol):
    """A source of ranks that are other processes."""

    def processes(self, wanted: Iterable[RankKey]) -> Mapping[RankKey, int]:
        """Process ids of these ranks, as seen from here; 0: it can't be seen."""
        ...

    def paths(self, wanted: Iterable[RankKey]) -> Mapping[RankKey, Path]:
        """Files of these ranks' segments."""
        ...


class Dumper:
    """The reaction to a hang (``argus.exporter.stacks.hang.Reaction``).

    Args:
        sources: Where ranks are.
        store: Where dumps go.
    """

    def __init__(self, sources: Sequence[object], store: Store) -> None:
        self.store = store
        self._sources = [source for source in sources if isinstance(source, ProcessSource)]
        self._outcomes = dict.fromkeys(OUTCOMES, 0)
        self._written: list[float] = []
        self._lock = threading.Lock()

    def __call__(self, hang: Hang) -> None:
        """Take the stacks of the ranks; a file is written whatever comes of it."""
        with self._lock:
            now = time.monotonic()
            self._written = [then for then in self._written if now - then < 3600]
            if len(self._written) >= _MOST_PER_HOUR:
                self._outcomes["limited"] += 1
                return
            self._written.append(now)
            parts, dumped = self._text(hang)
            numbers = [rank.state.identity.rank for rank in hang.ranks[:MOST_RANKS]]
            try:
                name = self.store.add("hang", hang.run_id, numbers, (part.encode() for part in parts))
            except OSError as error:
                self._outcomes["failed"] += 1
                _LOG.error("no dump of stacks in %s: %s", self.store.directory, error)
                return
            self._outcomes["written" if dumped else "failed"] += 1
            _LOG.info("wrote %s", self.store.directory / name)

    def points(self) -> Iterator[Point]:
        """The dumper's own metrics."""
        for outcome, count in self._outcomes.items():
            yield Point(catalogue.STACK_DUMPS, (outcome,), count)

    def _text(self, hang: Hang) -> tuple[list[str], int]:
        chosen = hang.ranks[:MOST_RANKS]
        parts = [
            f"Run {hang.run_id} stood still at {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())}:\n"
            f"no rank here had completed an iteration for {hang.age_s:.0f} s (limit {hang.limit_s:.0f} s).\n"
            f"{len(chosen)} of {len(hang.ranks)} ranks here; those first that wait in no collective.\n"
        ]
        pids: dict[RankKey, int] = {}
        segments: dict[RankKey, Path] = {}
        for source in self._sources:
            pids = {**source.processes(rank.state.identity.key for rank in chosen), **pids}
            segments = {**source.paths(rank.state.identity.key for rank in chosen), **segments}
        begun, dumped, failures = time.monotonic(), 0, set[str]()
        for rank in chosen:
            parts.append(f"\n{_heading(rank)}\n{_torch_record(segments.get(rank.state.identity.key))}")
            pid = pids.get(rank.state.identity.key)
            try:
                if pid is None:
                    raise DumpError("it ended meanwhile, or runs within the exporter")
                left = _WHOLE_S - (time.monotonic() - begun)
                if left <= 0:
                    raise DumpError("there was no time left for it")
                parts.append(dump(pid, min(DEADLINE_S, left)))
                dumped += 1
            except DumpError as error:
                failures.add(str(error))
                parts.append(f"No stack: {error}\n")
        for failure in sorted(failures)[:4]:
            _LOG.warning("no stack of a hung rank: %s", failure)
        return parts, dumped


def _heading(rank: Rank) -> str:
    state = rank.state
    number = "no iteration yet" if state.last_iteration is None else f"after iteration {state.last_iteration}"
    opened = "in no phase"
    if state.open is not None:
        opened = (
            f"in {state.open.name} ({state.open.kind}) for {(state.now_ns - state.open.begin_ns) / 1e9:.0f} s"
        )
    return f"== rank {state.identity.rank} ({state.identity.role}), {number}, {opened}"


def _torch_record(segment: Path | None) -> str:
    """Says where the rank has left torch's flight record, if it has."""
    record = torch_record(segment) if segment is not None else None
    if record is None or not record.is_file():
        return ""
    return f"torch's flight record, for torchfrtrace: {record}\n"
