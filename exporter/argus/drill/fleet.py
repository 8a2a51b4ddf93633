"""The modelled job's ranks as segments, written as live ranks would write them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from argus._native import Segment
from argus.drill.conditions import COMPUTE
from argus.drill.gpus import uuid
from argus.drill.timing import Channel, Iteration
from argus.drill.topology import Topology

KINDS = dict.fromkeys(COMPUTE, "compute") | dict.fromkeys(
    ("data_loading", "gc", "jit_compile", "gpu_idle"), "host"
)
_NS = 1e9
UNIT = "tokens"
Make = Callable[..., Segment]
"""Makes a segment from a rank's identity (keyword arguments)."""


def anonymous(**identity: Any) -> Segment:
    """A segment in memory.

    Raises:
        OSError: There is no memory for it.
    """
    return Segment(None, **identity)


class FleetRank:
    """One rank's segment."""

    def __init__(self, topology: Topology, rank: int, segment: Segment) -> None:
        self.rank, self.segment = rank, segment
        self._topology = topology
        self._stage, self._lane = topology.stage(rank), topology.lane(rank)
        self._phases: dict[str, int] = {}
        self._collectives: dict[tuple[str, str, int], int] = {}

    def phase(self, name: str) -> int:
        """Index of a phase; what is not a compute or host phase of the model is communication."""
        if name not in self._phases:
            self._phases[name] = self.segment.phase(name, KINDS.get(name, "communication"))
        return self._phases[name]

    def collective(self, channel: Channel) -> int:
        key = (channel.op, channel.group, channel.end)
        if key not in self._collectives:
            members = channel.members(self._topology, self.rank)
            spans = self._topology.spans(members)
            self._collectives[key] = self.segment.collective(
                channel.op, channel.group, channel.group_id(members), len(members), spans
            )
        return self._collectives[key]

    def feed(self, number: int, iteration: Iteration, offset: float, speed: float, bytes_known: bool) -> None:
        """Write one iteration; ``offset`` is added to the model's clock (s), ``speed`` divides durations."""
        place = (self._stage, self._lane)
        segment, scale = self.segment, _NS / speed
        busy = 0.0
        for name, seconds in iteration.phases.items():
            own = float(seconds[place])
            busy += own
            if own > 0:
                segment.observe_phase(self.phase(name), round(own * scale))
        for channel in iteration.channels:
            seen = channel.seconds[:, self._stage, self._lane]
            seen = seen[~np.isnan(seen)]
            if not len(seen):
                continue
            index = self.collective(channel)
            durations = np.rint(seen * scale).astype(np.int64).tolist()
            size = round(channel.bytes / speed) if bytes_known else 0
            for duration in durations:
                segment.observe_collective(index, duration, size)
            segment.observe_phase(self.phase(channel.op), sum(durations))
        for name in iteration.data_dependent:
            segment.data_dependent(self.phase(name))
        for name, units in iteration.units.items():
            segment.work(UNIT, name, float(units[place]))
        begin, end = float(iteration.begin[place]), float(iteration.end[place])
        segment.end_iteration(
            number, round((offset + end / speed) * _NS), round((end - begin) * scale), round(busy * scale)
        )


class Fleet:
    """All ranks of a job.

    Args:
        topology: Its sizes.
        run_id: Its name.
        make: Makes a segment; ``created`` and ``attempt`` are passed on to it.
        created: When the processes began, nanoseconds on the segments' clock.
        attempt: How often the run has been restarted.
        bytes_known: Whether collectives tell their payload.
    """

    def __init__(
        self,
        topology: Topology,
        run_id: str,
        make: Make = anonymous,
        created: int | None = None,
        attempt: int = 0,
        bytes_known: bool = True,
    ) -> None:
        self.topology, self.bytes_known = topology, bytes_known
        self.ranks: list[FleetRank] = []
        try:
            for rank in range(topology.ranks):
                identity = topology.identity(rank)
                segment = make(
                    run_id=run_id, attempt=attempt, created=created, gpu_uuid=uuid(rank), **identity
                )
                self.ranks.append(FleetRank(topology, rank, segment))
        except BaseException:
            self.close()
            raise

    @property
    def segments(self) -> list[Segment]:
        """In the order of ranks."""
        return [rank.segment for rank in self.ranks]

    def feed(
        self,
        number: int,
        iteration: Iteration,
        ranks: Iterable[int] | None = None,
        offset: float = 0.0,
        speed: float = 1.0,
    ) -> None:
        """Write an iteration of these ranks (default: all); see :meth:`FleetRank.feed`."""
        for rank in range(len(self.ranks)) if ranks is None else ranks:
            self.ranks[rank].feed(number, iteration, offset, speed, self.bytes_known)

    def close(self, state: str | None = None) -> None:
        """Let go of every segment, with ``state`` as its last word."""
        for rank in self.ranks:
            rank.segment.close(state)
