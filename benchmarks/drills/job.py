"""One drill in simulated time: what its ranks show at every scrape."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from argus.drill.faults import Moment, Stop, apply
from argus.drill.player import AWAITED
from argus.drill.scenario import Drill
from argus.drill.timing import Model, Profile
from argus.drill.topology import Topology
from argus.exporter.collectors.phases import OPEN_AFTER_S
from argus.exporter.lifecycle import RETENTION_S
from benchmarks.drills.windows import History, Windows

Mask = npt.NDArray[np.bool_]


@dataclass
class Process:
    """The ranks' processes between two restarts; ``dead``: (ranks,) seconds when each died."""

    begin: float
    attempt: int
    dead: npt.NDArray[np.float64]
    history: History


@dataclass(frozen=True)
class Open:
    """An open phase of some ranks, from ``begin`` until ``end`` (s)."""

    name: str
    kind: str
    begin: float
    end: float
    ranks: Mask


@dataclass
class Scrape:
    """What some nodes' exporters answer at one moment.

    Attributes:
        nodes: (nodes,) which of them were asked.
        known, up: (ranks,) ranks that they show at all, and alive.
        attempt: Of the run.
        windows: Their windows, in parts.
        open: Age of open phases: (name, kind) -> ranks, seconds.
    """

    nodes: Mask
    known: Mask
    up: Mask
    attempt: int
    windows: list[Windows]
    open: list[tuple[Open, Mask, float]] = field(default_factory=list)


class Job:
    """Plays a drill; ask it for scrapes in the order of time."""

    def __init__(self, drill: Drill, topology: Topology, profile: Profile, seed: int) -> None:
        self.topology, self.profile, self.truth = topology, profile, drill.truth
        self._drill = drill
        self._model = Model(topology, profile, seed)
        self._random = np.random.default_rng([seed, 1])
        self._stops = sorted(drill.stops, key=lambda stop: stop.at)
        self.played = 0
        """Iterations so far."""
        self._over = False
        self._node = np.arange(topology.ranks) // topology.per_node
        self._processes: list[Process] = []
        self._begin(0.0)
        self._open: list[Open] = []

    @property
    def history(self) -> History:
        """Of the first processes."""
        return self._processes[0].history

    def _begin(self, now: float) -> None:
        dead = np.full(self.topology.ranks, np.inf)
        self._processes.append(Process(now, len(self._processes), dead, History(self.topology)))

    def scrape(self, nodes: Mask, now: float) -> Scrape:
        """What these nodes show at ``now`` (s)."""
        while not self._over and (last := self._processes[-1]).begin <= now and last.history.produced <= now:
            self._advance()
        process = [p for p in self._processes if p.begin <= now][-1]
        here = nodes[self._node]
        up = here & (process.dead > now)
        known = here & (process.dead > now - RETENTION_S)
        result = Scrape(nodes, known, up, process.attempt, [])
        for part in process.history.windows(nodes, now):
            result.windows.append(part.of(up[part.ranks]))
        for one in self._open:
            if one.begin + OPEN_AFTER_S < now < one.end:
                result.open.append((one, one.ranks & up, now - one.begin))
        return result

    @property
    def _clock(self) -> float:
        return float(self._model.clock.max())

    def _advance(self) -> None:
        if self._stops and self._stops[0].at <= self._clock:
            self._stop(self._stops.pop(0))
            return
        moment = Moment(self._clock, self.played, self._random)
        conditions = apply(self._drill.faults, self._model.conditions(), moment)
        self._processes[-1].history.add(self.played, self._model.iteration(conditions))
        self.played += 1

    def _stop(self, stop: Stop) -> None:
        now, ranks = self._clock, np.zeros(self.topology.ranks, bool)
        ranks[list(stop.ranks)] = True
        if stop.kind in ("hang", "die"):
            self._over = True
            if stop.kind == "die":
                self._processes[-1].dead[ranks] = now
            else:
                self._open.append(Open("backward", "compute", now, np.inf, ranks))
            self._open.append(Open(AWAITED, "communication", now, np.inf, ~ranks))
            return
        self._model.clock[:] = again = now + stop.seconds
        if stop.kind == "pause":
            self._open.append(Open(stop.pause, "pause", now, again, ~ranks))
            return
        self._processes[-1].dead[:] = now
        self._begin(again)
