"""From the rows of one iteration to what a live rank would have counted.

The rule is that of live accounting (docs/architecture.md): each moment belongs to
the phase begun last and still open, on whatever thread, so phase seconds are
exclusive and busy is the plain sum of compute and host time.  Ranks whose
durations were measured where the work ran (``as_recorded``) keep them; their
busy is the union of compute and host intervals.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from argus.traces.intervals import length, union
from argus.traces.table import BUSY, WALL, Rows, Table

Floats = npt.NDArray[np.float64]

BUSY_KINDS = frozenset({"compute", "host"})


@dataclass
class RankIteration:
    """One rank's iteration: its occurrences, and wall and busy in seconds.

    ``seconds`` are exclusive, one for each of ``rows``; ``begin`` and ``end``
    are the extent on the rows' clock.
    """

    rank: int
    iteration: int
    rows: Rows
    seconds: Floats
    begin: float
    end: float
    wall: float
    busy: float


def exclusive(start: Floats, duration: Floats) -> Floats:
    """Exclusive seconds of one rank's occurrences (shape (n,)), given by start, then longest first."""
    if not _overlapping(start, duration):
        return duration
    own = np.zeros(len(start))
    for index, begin, end in _pieces(start, duration):
        own[index] += end - begin
    return own


def spans(rank: RankIteration, table: Table) -> tuple[Floats, Floats, npt.NDArray[np.int64]]:
    """Start, duration and row of the pieces of time that a rank's occurrences held, by start.

    Where durations stand as recorded a piece is an occurrence, and pieces may overlap.
    """
    start, duration = rank.rows["start"], rank.rows["duration"]
    if table.ranks[rank.rank].as_recorded or not _overlapping(start, duration):
        return start, duration, np.arange(len(start))
    pieces = np.array(list(_pieces(start, duration))).reshape(-1, 3)
    return pieces[:, 1], pieces[:, 2] - pieces[:, 1], pieces[:, 0].astype(np.int64)


def _overlapping(start: Floats, duration: Floats) -> bool:
    reach = np.maximum.accumulate(start + duration)
    return bool(np.any(start[1:] < reach[:-1]))


def _pieces(start: Floats, duration: Floats) -> Iterator[tuple[int, float, float]]:
    """(occurrence, begin, end): each moment goes to the occurrence begun last and still open."""
    begins, ends = start.tolist(), (start + duration).tolist()
    now = float("-inf")
    stack: list[int] = []
    for index in range(len(begins) + 1):
        until = begins[index] if index < len(begins) else float("inf")
        while stack and now < until:
            top = stack[-1]
            stop = min(ends[top], until)
            if stop > now:
                yield top, now, stop
                now = stop
            if ends[top] <= now:
                stack.pop()
        now = max(now, until)
        stack.append(index)


class Accountant:
    """Turns a table's iterations, in order, into ``RankIteration``.

    Iterations that follow each other on one clock are contiguous, as in live
    accounting: an iteration begins where the rank's previous one ended.  After
    a gap in the iterations' numbers, or where the clock starts again (the first
    row lies before the middle of the previous iteration), it begins with its
    first row.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._previous: dict[int, tuple[int, float, float]] = {}
        self._counted = np.array([], dtype=bool)

    def _busy_phases(self) -> npt.NDArray[np.bool_]:
        if len(self._counted) != len(self._table.phases):
            self._counted = np.array([phase.kind in BUSY_KINDS for phase in self._table.phases], dtype=bool)
        return self._counted

    def ranks(self, iteration: int, rows: Rows) -> Iterator[RankIteration]:
        """The iteration's ranks in ascending order, from rows ordered as ``Table.read`` gives them."""
        ranks, first = np.unique(rows["rank"], return_index=True)
        bounds = [*first.tolist(), len(rows)]
        for position, rank in enumerate(ranks.tolist()):
            yield self._rank(iteration, rank, rows[bounds[position] : bounds[position + 1]])

    def _rank(self, iteration: int, rank: int, rows: Rows) -> RankIteration:
        stated = rows[rows["phase"] < 0]
        rows = rows[rows["phase"] >= 0]
        wall_row = stated[stated["phase"] == WALL]
        busy_row = stated[stated["phase"] == BUSY]
        start = np.ascontiguousarray(rows["start"])
        duration = np.ascontiguousarray(rows["duration"])
        end = start + duration
        counted = self._busy_phases()[rows["phase"]]
        if self._table.ranks[rank].as_recorded:
            seconds = duration
            busy = float(length(union(np.stack((start[counted], end[counted]), axis=1))))
        else:
            seconds = exclusive(start, duration)
            busy = float(seconds[counted].sum())
        if len(wall_row):
            begin = float(wall_row["start"].min())  # a part of the trace may state a part of it
            finish = float((wall_row["start"] + wall_row["duration"]).max())
        else:
            finish = float(end.max()) if len(end) else 0.0
            begin = self._begin(rank, iteration, float(start.min()) if len(start) else finish, finish)
        self._previous[rank] = (iteration, begin, finish)
        if len(busy_row):
            busy = float(busy_row["duration"].sum())
        return RankIteration(rank, iteration, rows, seconds, begin, finish, finish - begin, busy)

    def _begin(self, rank: int, iteration: int, start: float, finish: float) -> float:
        previous = self._previous.get(rank)
        if previous is None:
            return start
        number, previous_begin, previous_end = previous
        middle = (previous_begin + previous_end) / 2
        follows = number == iteration - 1 and start > middle and finish > previous_end
        return previous_end if follows else start
