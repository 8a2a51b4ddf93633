"""What goes wrong, iteration by iteration.

A fault is asked before every iteration and changes its :class:`Conditions`; a
:class:`Stop` ends or interrupts the job itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from argus.drill.conditions import COMPUTE, Conditions
from argus.drill.topology import Topology


@dataclass(frozen=True)
class Moment:
    """An iteration about to begin: seconds since the drill's begin, its number, randomness for faults."""

    now: float
    number: int
    random: np.random.Generator


class Fault(Protocol):
    """Changes the conditions of an iteration in which it is active."""

    def apply(self, conditions: Conditions, moment: Moment) -> None:
        """Change them."""
        ...


@dataclass(frozen=True)
class SlowRanks:
    """These ranks' compute phases take ``factor`` times as long."""

    topology: Topology
    ranks: tuple[int, ...]
    phases: tuple[str, ...]
    factor: float

    def apply(self, conditions: Conditions, moment: Moment) -> None:
        for rank in self.ranks:
            for phase in self.phases:
                conditions.compute[phase][self.topology.stage(rank), self.topology.lane(rank)] *= self.factor


@dataclass(frozen=True)
class Overheated:
    """Heat holds these ranks' GPUs down: the clock falls, and all compute takes ``factor`` times as long."""

    topology: Topology
    ranks: tuple[int, ...]
    factor: float

    def apply(self, conditions: Conditions, moment: Moment) -> None:
        SlowRanks(self.topology, self.ranks, COMPUTE, self.factor).apply(conditions, moment)
        for rank in self.ranks:
            conditions.clocks[self.topology.stage(rank), self.topology.lane(rank)] /= self.factor


@dataclass(frozen=True)
class HostBound:
    """These ranks launch late: ``share`` of their compute time goes by between kernels."""

    topology: Topology
    ranks: tuple[int, ...]
    share: float

    def apply(self, conditions: Conditions, moment: Moment) -> None:
        for rank in self.ranks:
            conditions.gaps[self.topology.stage(rank), self.topology.lane(rank)] = self.share


@dataclass(frozen=True)
class Stall:
    """A host phase holds these ranks up for ``seconds``, in every ``every``-th iteration.

    Without ranks it is another one each time.
    """

    topology: Topology
    phase: str
    seconds: float
    ranks: tuple[int, ...] = ()
    every: int = 1

    def apply(self, conditions: Conditions, moment: Moment) -> None:
        if moment.number % self.every:
            return
        ranks = self.ranks or (int(moment.random.integers(self.topology.ranks)),)
        for rank in ranks:
            # Never twice the same length, as in reality.
            seconds = self.seconds * moment.random.uniform(0.8, 1.2)
            conditions.stalls[self.phase][self.topology.stage(rank), self.topology.lane(rank)] += seconds


@dataclass(frozen=True)
class SlowLink:
    """The transfers of the tp, cp, dp or ep communicator of a rank take ``factor`` times as long."""

    topology: Topology
    group: str
    rank: int
    factor: float

    def apply(self, conditions: Conditions, moment: Moment) -> None:
        groups = self.topology.lane_groups[self.group]
        index = int(np.argwhere((groups == self.topology.lane(self.rank)).any(axis=1))[0, 0])
        conditions.links[self.group][self.topology.stage(self.rank), index] *= self.factor


@dataclass(frozen=True)
class SlowEdge:
    """Transfers between a rank and its lane in the next stage take ``factor`` times as long, both ways."""

    topology: Topology
    rank: int
    factor: float

    def apply(self, conditions: Conditions, moment: Moment) -> None:
        topology, stage = self.topology, self.topology.stage(self.rank)
        # Of two stages each is the other's next: the same two ranks.
        for one in {stage, (stage + 1) % topology.pp} if topology.pp == 2 else {stage}:
            conditions.edges[one, topology.lane(self.rank)] *= self.factor


@dataclass(frozen=True)
class SlowAdapter:
    """Everything that leaves or enters a node takes ``factor`` times as long."""

    topology: Topology
    node: int
    factor: float

    def apply(self, conditions: Conditions, moment: Moment) -> None:
        topology = self.topology
        own = topology.ranks_of_node(self.node)
        for group, lanes in topology.lane_groups.items():
            members = lanes[None] + np.arange(topology.pp)[:, None, None] * topology.lanes
            on_node = (members >= own.start) & (members < own.stop)
            conditions.links[group][on_node.any(axis=2) & ~on_node.all(axis=2)] *= self.factor
        ranks = np.arange(topology.ranks).reshape(topology.pp, topology.lanes)
        here = (ranks >= own.start) & (ranks < own.stop)
        conditions.edges[here != np.roll(here, -1, axis=0)] *= self.factor


@dataclass(frozen=True)
class SlowStage:
    """Every rank of a stage has ``factor`` times the work."""

    stage: int
    factor: float

    def apply(self, conditions: Conditions, moment: Moment) -> None:
        for phase in ("attention", "mlp", "backward"):
            conditions.compute[phase][self.stage] *= self.factor


@dataclass(frozen=True)
class UnevenWork:
    """In every iteration another pipeline has micro-batches of ``factor`` times the work."""

    topology: Topology
    factor: float

    def apply(self, conditions: Conditions, moment: Moment) -> None:
        width = self.topology.tp * self.topology.cp
        first = int(moment.random.integers(self.topology.dp)) * width
        conditions.work[:, first : first + width] *= self.factor


@dataclass(frozen=True)
class SkewedWork:
    """Experts have lastingly different loads, one of them ``factor`` times the usual.

    Ranks report their tokens where ``reported``; otherwise the job marks the phases as dependent on the data.
    """

    topology: Topology
    factor: float
    hot: int
    """A rank of the busiest expert."""
    reported: bool = True

    def apply(self, conditions: Conditions, moment: Moment) -> None:
        experts = self.topology.lanes // self.topology.tp
        # Spread evenly over 0.8 to 1.2, in no order: multiples of the golden section.
        loads = 0.8 + 0.4 * (np.arange(experts) * 0.6180339887 % 1)
        loads[self.topology.lane(self.hot) // self.topology.tp] = self.factor
        load = np.tile(np.repeat(loads, self.topology.tp), (self.topology.pp, 1))
        for phase in ("mlp", "backward"):
            conditions.compute[phase] *= load
            if self.reported:
                conditions.units[phase] = 4096 * load
            else:
                conditions.data_dependent.add(phase)


@dataclass(frozen=True)
class AllSlow:
    """Everybody takes ``factor`` times as long, in every other period of ``period`` seconds (0: always)."""

    factor: float
    period: float = 0.0

    def apply(self, conditions: Conditions, moment: Moment) -> None:
        if self.period and int(moment.now // self.period) % 2 == 0:
            return
        for seconds in conditions.compute.values():
            seconds *= self.factor


@dataclass(frozen=True)
class Between:
    """Another fault, from ``since`` until ``until``, in every other ``period`` of that (0: always)."""

    fault: Fault
    since: float
    until: float = float("inf")
    period: float = 0.0

    def apply(self, conditions: Conditions, moment: Moment) -> None:
        passed = moment.now - self.since
        off = self.period and int(passed // self.period) % 2
        if passed >= 0 and moment.now < self.until and not off:
            self.fault.apply(conditions, moment)


@dataclass(frozen=True)
class Stop:
    """Something that happens to the job at a time (seconds since the drill's begin).

    ``hang``: ``ranks`` never come out of their backward, all others wait for them;
    ``die``: ``ranks`` die, all others hang; ``restart``: every rank begins again, one attempt later;
    ``pause``: a declared pause of ``seconds``, of the kind ``pause``.
    """

    at: float
    kind: Literal["hang", "die", "restart", "pause"]
    ranks: tuple[int, ...] = ()
    seconds: float = 0.0
    pause: str = "checkpoint"


def apply(faults: Iterable[Fault], conditions: Conditions, moment: Moment) -> Conditions:
    """The conditions with every fault's changes."""
    for fault in faults:
        fault.apply(conditions, moment)
    return conditions
