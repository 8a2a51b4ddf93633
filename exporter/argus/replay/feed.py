"""Write recorded iterations into segments, as live ranks would."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from argus._native import Segment
from argus.traces import Collective, Rank, RankIteration, Table

_NS = 1e9

WORK_UNIT = "units"
"""Unit of a trace's ``work`` column, which names none."""


def anonymous(rank: Rank, world_size: int) -> Segment:
    """A segment in memory for one recorded rank.

    Raises:
        OSError: There is no memory for it.
    """
    return Segment(None, **segment_fields(rank, world_size))


def segment_fields(rank: Rank, world_size: int) -> dict[str, Any]:
    """A recorded rank's identity, as keyword arguments for its segment."""
    return {
        "run_id": rank.run_id,
        "rank": rank.rank,
        "role": rank.role,
        "node": rank.node,
        "world_size": world_size,
        "dp": rank.dp,
        "tp": rank.tp,
        "pp": rank.pp,
        "cp": rank.cp,
        "ep": rank.ep,
    }


class RankFeed:
    """Feeds one rank's iterations into its segment."""

    def __init__(self, table: Table, segment: Segment) -> None:
        self.segment = segment
        self._table = table
        self._phases: dict[int, int] = {}
        self._collectives: dict[Collective, int] = {}

    def _phase(self, code: int) -> int:
        index = self._phases.get(code)
        if index is None:
            phase = self._table.phases[code]
            index = self._phases[code] = self.segment.phase(phase.name, phase.kind)
        return index

    def _collective(self, code: int) -> int:
        key = self._table.collectives[code]
        index = self._collectives.get(key)
        if index is None:
            index = self.segment.collective(key.op, key.group, key.group_id, key.members)
            self._collectives[key] = index
        return index

    def feed(self, iteration: RankIteration, end_ns: int, speed: float = 1.0) -> None:
        """Write one iteration that ended at ``end_ns``.

        Collectives count with the time that the rank saw (inclusive), phases
        with their exclusive seconds.  ``speed`` divides all of them.
        """
        rows = iteration.rows
        segment = self.segment
        exclusive = np.rint(iteration.seconds * (_NS / speed)).astype(np.int64).tolist()
        inclusive = np.rint(rows["duration"] * (_NS / speed)).astype(np.int64).tolist()
        sizes = np.nan_to_num(rows["bytes"], nan=0.0).astype(np.int64).tolist()
        phases, collectives = rows["phase"].tolist(), rows["collective"].tolist()
        for phase, collective, own, seen, size in zip(
            phases, collectives, exclusive, inclusive, sizes, strict=True
        ):
            segment.observe_phase(self._phase(phase), own)
            if collective >= 0:
                index = self._collective(collective)
                if index >= 0:
                    segment.observe_collective(index, seen, size)
        self._work(iteration)
        segment.end_iteration(
            iteration.iteration,
            end_ns,
            round(iteration.wall * _NS / speed),
            round(iteration.busy * _NS / speed),
        )

    def _work(self, iteration: RankIteration) -> None:
        known = ~np.isnan(iteration.rows["work"])
        if not known.any():
            return
        amounts: dict[int, float] = defaultdict(float)
        for row in iteration.rows[known]:
            amounts[int(row["phase"])] += float(row["work"])
        for code, amount in amounts.items():
            self.segment.work(WORK_UNIT, self._table.phases[code].name, amount)


class Feed:
    """Feeds all ranks of a table.

    Args:
        table: The trace.
        make: Makes a rank's segment from its identity.
        world_size: Announced by every rank.
    """

    def __init__(self, table: Table, make: Callable[[Rank, int], Segment], world_size: int) -> None:
        self.ranks: dict[int, RankFeed] = {}
        try:
            for number, rank in sorted(table.ranks.items()):
                self.ranks[number] = RankFeed(table, make(rank, world_size))
        except BaseException:
            self.close()
            raise

    @property
    def segments(self) -> list[Segment]:
        """In the order of ranks."""
        return [feed.segment for feed in self.ranks.values()]

    def feed(self, iterations: Iterable[RankIteration], end_ns: int, speed: float = 1.0) -> None:
        """Write one iteration of every rank that has it; all end at ``end_ns``."""
        for iteration in iterations:
            self.ranks[iteration.rank].feed(iteration, end_ns, speed)

    def close(self, state: str | None = None) -> None:
        """Let go of every segment, with ``state`` as its last word."""
        for feed in self.ranks.values():
            feed.segment.close(state)


def recorded_world_size(table: Table) -> int:
    """Ranks in the run as the trace states it, else as many as were recorded."""
    return max(len(table.ranks), *(rank.world_size for rank in table.ranks.values()))
