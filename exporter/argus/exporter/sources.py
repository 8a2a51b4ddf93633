"""Where ranks come from: files of this node (``lifecycle``), or segments of this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from argus.flight.recording import HasSnapshot, Recording, record_memory
from argus.segment.reader import read
from argus.segment.sections import IncompatibleSegment, SegmentError
from argus.segment.state import RankKey, RankState, RunState


class Rank(NamedTuple):
    """A rank to export; ``up`` tells whether its process is alive."""

    state: RankState
    up: bool


SEGMENT_STATES = ("alive", "down", "incompatible", "unreadable", "refused")
"""Values of ``argus_exporter_segments``' label."""


@dataclass
class Scan:
    """What a source found.

    Attributes:
        ranks: One for each (run_id, role, rank).
        segments: How many segments are in each of ``SEGMENT_STATES``.
        ended: By run_id, how many ranks ended cleanly.
    """

    ranks: list[Rank] = field(default_factory=list)
    segments: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SEGMENT_STATES, 0))
    ended: dict[str, int] = field(default_factory=dict)


class RankSource(Protocol):
    """Finds ranks, at each scrape."""

    def scan(self, now_ns: int) -> Scan:
        """Look now; ``now_ns`` is on the clock of the segments (CLOCK_MONOTONIC when live)."""
        ...


class MemorySource:
    """Segments held by this process: its own rank, a replay's, a test's.

    A segment's file must not be opened by the process that writes it (closing it would drop the
    lock that says that the rank is alive), so they are read through ``snapshot()``.

    Args:
        segments: The segments now, or a function that returns them at each scan.
    """

    def __init__(self, segments: Iterable[HasSnapshot] | Callable[[], Iterable[HasSnapshot]]) -> None:
        self._segments = segments if callable(segments) else lambda kept=tuple(segments): kept

    def scan(self, now_ns: int) -> Scan:
        scan = Scan()
        for segment in self._segments():
            try:
                state = read(segment.snapshot(), now_ns)
            except IncompatibleSegment:
                scan.segments["incompatible"] += 1
            except (SegmentError, ValueError):
                scan.segments["unreadable"] += 1
            else:
                if state.run_state is RunState.ENDED:
                    run_id = state.identity.run_id
                    scan.ended[run_id] = scan.ended.get(run_id, 0) + 1
                    continue
                up = state.run_state is RunState.RUNNING
                scan.ranks.append(Rank(state, up))
                scan.segments["alive" if up else "down"] += 1
        return scan

    def record(self, wanted: Iterable[RankKey], now_ns: int) -> list[Recording]:
        """Read the flight recorders of these ranks; see ``RecordingSource``."""
        keys, recordings = frozenset(wanted), []
        for segment in self._segments():
            with suppress(SegmentError, ValueError):
                state = read(segment.snapshot(), now_ns)
                if state.identity.key in keys and state.run_state is not RunState.ENDED:
                    up = state.run_state is RunState.RUNNING
                    recordings.append(record_memory(segment, up, now_ns))
        return recordings


def merge(scans: Iterable[Scan]) -> Scan:
    """One scan of several sources; of equal ranks the first that is up stands, or else the first."""
    total = Scan()
    ranks: dict[tuple[str, str, int], Rank] = {}
    for scan in scans:
        for rank in scan.ranks:
            key = rank.state.identity.key
            kept = ranks.get(key)
            if kept is None or (rank.up and not kept.up):
                ranks[key] = rank
        _add(total.segments, scan.segments)
        _add(total.ended, scan.ended)
    total.ranks = [ranks[key] for key in sorted(ranks)]
    return total


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for key, count in more.items():
        total[key] = total.get(key, 0) + count
