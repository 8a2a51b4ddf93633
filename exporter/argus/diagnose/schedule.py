"""Replay one recorded iteration with other durations: who would have waited for whom.

Every rank does its recorded occurrences in their recorded order: one begins when
those that had ended before it began have ended.  Compute and host occurrences
take their time.  The n-th occurrence of a collective ends for all its members at
once, one transfer after the last of them has come.  The transfer is what somebody
saw who came last: the shortest recorded duration of the n-th occurrence in like
communicators (same operation, group and number of members).  A mixed phase can
wait, so it is taken for a meeting of all ranks that have it.  Time between
occurrences is taken for waiting and left out.

This is the idea of "Understanding Stragglers in Large Model Training Using
What-if Analysis", without knowledge of a schedule: the order comes from the trace.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from argus.traces import Collective, RankIteration, Table
from argus.traces.accounting import Floats, spans

_TOGETHER = 1e-4
"""Part of the iteration by which an occurrence may begin before another's end and still come after it:
above the rounding of recorded times (float32 has 1e-7), below any real overlap."""


@dataclass
class _Unit:
    """One occurrence: what it waits for, and, once known, when it ends."""

    seconds: float
    meeting: _Meeting | None
    after: list[_Unit] = field(default_factory=list)
    end: float | None = None


@dataclass
class _Meeting:
    """One occurrence of a collective.

    Attributes:
        like: What it has in common with those of like communicators.
        transfer: Seconds from the last arrival to the end.
        units: (number of the rank's line, its occurrence) of every member.
        arrivals: When members came, as far as they have.
    """

    like: tuple[object, int]
    transfer: float = 0.0
    units: list[tuple[int, _Unit]] = field(default_factory=list)
    arrivals: list[float] = field(default_factory=list)


class _Line:
    """One rank's occurrences, in the order of their begin, and how far it is.

    An occurrence's ``after`` are those that had ended when it began, without
    those that an earlier one of the rank comes after anyway.
    """

    def __init__(self, units: list[_Unit], start: Floats, end: Floats, slack: float) -> None:
        self.units = units
        self.position = 0
        self._free = 0.0
        running: list[tuple[float, int]] = []
        for index, (begin, finish) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
            while running and running[0][0] <= begin + slack:
                units[index].after.append(units[heapq.heappop(running)[1]])
            heapq.heappush(running, (finish, index))

    def arrival(self, unit: _Unit) -> float | None:
        """When ``unit``, the next of the rank, can begin; None while that isn't known."""
        ends = [before.end for before in unit.after]
        known = [end for end in ends if end is not None]
        if len(known) < len(ends):
            return None
        self._free = max([self._free, *known])
        return self._free


class Iteration:
    """One iteration, ready to be replayed.

    Args:
        table: Where the rows come from.
        ranks: The iteration's ranks.
    """

    def __init__(self, table: Table, ranks: list[RankIteration]) -> None:
        self._table = table
        self._ranks = ranks
        self._spans = [spans(rank, table) for rank in ranks]

    def seconds(self, scale: Callable[[int, int], float]) -> float:
        """How long the iteration takes when phase p on rank r takes ``scale(r, p)`` times as long.

        Scaling concerns compute and host phases only.
        """
        lines = self._lines(scale)
        waiting = list(range(len(lines)))
        while waiting:
            released: list[int] = []
            for index in waiting:
                released += self._advance(lines, index)
            if not released:
                released = self._force(lines)
            waiting = sorted(set(released))
        return max((unit.end or 0.0 for line in lines for unit in line.units), default=0.0)

    def _lines(self, scale: Callable[[int, int], float]) -> list[_Line]:
        meetings: dict[tuple[object, int], _Meeting] = {}
        shortest: dict[tuple[object, int], float] = defaultdict(lambda: float("inf"))
        lines = []
        for number, (rank, (start, duration, row)) in enumerate(zip(self._ranks, self._spans, strict=True)):
            phases = rank.rows["phase"][row].tolist()
            codes = rank.rows["collective"][row].tolist()
            factors = {phase: scale(rank.rank, phase) for phase in set(phases)}
            count: dict[object, int] = defaultdict(int)
            units: list[_Unit] = []
            for phase, code, seconds in zip(phases, codes, duration.tolist(), strict=True):
                name = self._meets(phase, code)
                if name is None:
                    units.append(_Unit(seconds * factors[phase], None))
                    continue
                like = (_alike(name), count[name])
                shortest[like] = min(shortest[like], seconds)
                meeting = meetings.setdefault((name, count[name]), _Meeting(like))
                meeting.units.append((number, _Unit(0.0, meeting)))
                units.append(meeting.units[-1][1])
                count[name] += 1
            slack = _TOGETHER * (rank.end - rank.begin)
            lines.append(_Line(units, start, start + duration, slack))
        for meeting in meetings.values():
            meeting.transfer = shortest[meeting.like]
        return lines

    def _meets(self, phase: int, code: int) -> Collective | int | None:
        """Whom an occurrence can wait for: its communicator, everybody in a mixed phase, or None."""
        if code >= 0:
            return self._table.collectives[code]
        return phase if self._table.phases[phase].kind == "mixed" else None

    @staticmethod
    def _advance(lines: list[_Line], index: int) -> list[int]:
        """Go on with one rank as far as possible; return the ranks that this released."""
        line = lines[index]
        released: list[int] = []
        while line.position < len(line.units):
            unit = line.units[line.position]
            arrival = line.arrival(unit)
            if arrival is None:
                break
            line.position += 1
            if unit.meeting is None:
                unit.end = arrival + unit.seconds
                continue
            unit.meeting.arrivals.append(arrival)
            if len(unit.meeting.arrivals) == len(unit.meeting.units):
                released += _settle(unit.meeting)
        return released

    @staticmethod
    def _force(lines: list[_Line]) -> list[int]:
        """Where occurrences don't match, nobody goes on: settle an open meeting with those that came."""
        for line in lines:
            for unit in line.units[: line.position]:
                if unit.end is None and unit.meeting is not None:
                    return _settle(unit.meeting)
        return []


def _alike(name: Collective | int) -> object:
    """The same for communicators that do the same: operation, group and number of members."""
    return name if isinstance(name, int) else (name.op, name.group, name.members)


def _settle(meeting: _Meeting) -> list[int]:
    end = max(meeting.arrivals, default=0.0) + meeting.transfer
    for _, unit in meeting.units:
        unit.end = end
    return [line for line, _ in meeting.units]


def totals(ranks: list[RankIteration]) -> dict[int, Floats]:
    """Seconds of every phase in the iteration, by rank: arrays indexed by the table's phases."""
    result: dict[int, Floats] = {}
    for rank in ranks:
        result[rank.rank] = np.bincount(rank.rows["phase"], weights=rank.seconds).astype(np.float64)
    return result
