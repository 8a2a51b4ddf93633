"""Window summaries of all ranks of a drill at once.

The same figures that a segment, its reader and the exporter give (``argus.segment.window``), computed
over arrays: hundreds of ranks cost what one costs there.  ``tests/test_drill_batch.py`` holds the two
against each other.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from argus.drill.timing import Channel, Iteration
from argus.drill.topology import Topology
from argus.segment.window import LEAST, MOST, SPAN_NS

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]
SPAN = SPAN_NS / 1e9


class Row(NamedTuple):
    """One iteration of all ranks, in seconds.

    Attributes:
        number: Of the iteration.
        end: (ranks,) on the drill's clock.
        due: (nodes,) when the last rank of each node is there: the node's ranks show it from then on.
        spent: (2 + phases, ranks): wall, busy, then the phases.
        collectives: (2, channels, ranks): fastest and typical occurrence; NaN where a rank has no part.
        units: By phase, (ranks,): units of work that were reported for it.
        dependent: Phases that the job marks as dependent on the data.
    """

    number: int
    end: Floats
    due: Floats
    spent: Floats
    collectives: Floats
    units: dict[str, Floats]
    dependent: frozenset[str]


class Windows(NamedTuple):
    """Windows of some ranks; a rank whose window is still empty is left out.

    Attributes:
        ranks: (n,) which ranks.
        number, end: (n,) last iteration and when it ended.
        count: (n,) iterations in the window; 0: below the least, all that follows is NaN.
        spent: (3, 2 + phases, n): fastest, typical, slowest; NaN for a phase that took no time.
        collectives: (2, channels, n): fastest and typical occurrence.
        work: By phase, (3, n): units in the typical iteration; seconds of one, fastest and typical.
        dependent: Phases that are marked as dependent on the data.
    """

    ranks: Indices
    number: Floats
    end: Floats
    count: Floats
    spent: Floats
    collectives: Floats
    work: dict[str, Floats]
    dependent: frozenset[str]

    def of(self, chosen: npt.NDArray[np.bool_]) -> Windows:
        """Only these of its ranks, (n,)."""
        columns = (self.ranks, self.number, self.end, self.count, self.spent, self.collectives)
        work = {phase: found[:, chosen] for phase, found in self.work.items()}
        return Windows(*(column[..., chosen] for column in columns), work, self.dependent)


class History:
    """The last iterations of a drill."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._node = np.arange(topology.ranks) // topology.per_node
        self._first_of_node = np.arange(0, topology.ranks, topology.per_node)
        # Nodes may see an iteration at different times, so some more than a window holds.
        self._rows: deque[Row] = deque(maxlen=MOST + 8)
        self.channels: list[Channel] = []
        self.occurrences: npt.NDArray[np.int64] = np.zeros((0, topology.pp), np.int64)
        self.phases: list[str] = []

    @property
    def produced(self) -> float:
        """Until when everything is known that any node shows, seconds."""
        return float(self._rows[-1].due.min()) if self._rows else -1.0

    def add(self, number: int, iteration: Iteration) -> None:
        """The next iteration."""
        ranks = self._topology.ranks
        channels = _joined(iteration.channels) if self._topology.pp == 2 else iteration.channels
        if not self.channels:
            self.phases, self.channels = list(iteration.phases), channels
            self.occurrences = np.array([(~np.isnan(c.seconds[:, :, 0])).sum(axis=0) for c in channels])
        end = iteration.end.reshape(ranks)
        phases = np.stack([iteration.phases[name].reshape(ranks) for name in self.phases])
        wall = end - iteration.begin.reshape(ranks)
        spent = np.concatenate((wall[None], phases.sum(axis=0)[None], phases))
        seen = [_occurrence(c.seconds, n) for c, n in zip(channels, self.occurrences, strict=True)]
        collectives = np.stack(seen, axis=1) if seen else np.zeros((2, 0, ranks))
        due = np.maximum.reduceat(end, self._first_of_node)
        units = {phase: found.reshape(ranks) for phase, found in iteration.units.items()}
        dependent = frozenset(iteration.data_dependent)
        seconds = collectives.reshape(2, -1, ranks)
        self._rows.append(Row(number, end.copy(), due, spent, seconds, units, dependent))

    def windows(self, nodes: npt.NDArray[np.bool_], now: float) -> list[Windows]:
        """Windows of the ranks on these nodes, in parts that share their iterations."""
        if not self._rows:
            return []
        rows = list(self._rows)
        visible = (np.stack([row.due for row in rows]) <= now).sum(axis=0)
        ends = np.stack([row.end for row in rows])
        last = np.where(nodes, visible, 0)[self._node]
        seen = np.arange(len(rows))[:, None] < last
        recent = ((ends >= now - SPAN) & seen).sum(axis=0)
        count = np.clip(np.maximum(recent, LEAST), LEAST, MOST)
        found = []
        for until, size in sorted({*zip(last[last > 0].tolist(), count[last > 0].tolist(), strict=True)}):
            ranks = np.flatnonzero((last == until) & (count == size))
            found.append(self._window(rows[max(0, until - size) : until], ranks, size))
        return found

    def _window(self, rows: list[Row], ranks: Indices, size: int) -> Windows:
        number = np.full(len(ranks), float(rows[-1].number))
        end = rows[-1].end[ranks]
        if len(rows) < LEAST:
            nothing = np.full((3, 2 + len(self.phases), len(ranks)), np.nan)
            none = np.full((2, len(self.channels), len(ranks)), np.nan)
            return Windows(ranks, number, end, np.zeros(len(ranks)), nothing, none, {}, rows[-1].dependent)
        spent = np.sort(np.stack([row.spent[:, ranks] for row in rows]), axis=0)
        quantiles = np.stack((spent[0], _middle(spent), spent[-1]))
        quantiles[:, quantiles[2] <= 0] = np.nan
        seen = np.stack([row.collectives[:, :, ranks] for row in rows])
        collectives = np.stack((seen[:, 0].min(axis=0), _middle(np.sort(seen[:, 1], axis=0))))
        count = np.full(len(ranks), float(len(rows)))
        work = self._work(rows, ranks)
        return Windows(ranks, number, end, count, quantiles, collectives, work, rows[-1].dependent)

    def _work(self, rows: list[Row], ranks: Indices) -> dict[str, Floats]:
        found = {}
        for phase in rows[-1].units:
            seconds = 2 + self.phases.index(phase)
            told = [row for row in rows if phase in row.units]
            if len(told) >= LEAST:
                units = np.stack([row.units[phase][ranks] for row in told])
                pace = np.sort(np.stack([row.spent[seconds, ranks] for row in told]) / units, axis=0)
                found[phase] = np.stack((_middle(np.sort(units, axis=0)), pace[0], _middle(pace)))
        return found


def _joined(channels: list[Channel]) -> list[Channel]:
    """Of two stages each is the other's next and the one before: the same communicator."""
    found: dict[tuple[str, str], list[Channel]] = {}
    for channel in channels:
        found.setdefault((channel.op, channel.group), []).append(channel)
    return [
        replace(same[0], seconds=np.concatenate([channel.seconds for channel in same]))
        for same in found.values()
    ]


def _middle(ordered: Floats) -> Floats:
    n = len(ordered)
    middle: Floats = (ordered[(n - 1) // 2] + ordered[n // 2]) / 2
    return middle


def _occurrence(seconds: Floats, occurrences: npt.NDArray[np.int64]) -> Floats:
    """(occurrences, stages, lanes) -> fastest and typical, (2, stages, lanes)."""
    ordered = np.sort(seconds, axis=0)
    typical = np.full(seconds.shape[1:], np.nan)
    for stage, n in enumerate(occurrences.tolist()):
        if n:
            typical[stage] = (ordered[(n - 1) // 2, stage] + ordered[n // 2, stage]) / 2
    return np.stack((ordered[0], typical))
