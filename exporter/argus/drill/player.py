"""A drill as a sequence of moments, for real time and simulated time alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from argus.drill.conditions import Floats
from argus.drill.faults import Moment, Stop, apply
from argus.drill.fleet import Fleet, Make, anonymous
from argus.drill.gpus import ModelledGpus
from argus.drill.scenario import Drill
from argus.drill.timing import Iteration, Model, Profile
from argus.drill.topology import Topology

Action = Callable[[], None]
_NS = 1e9
AWAITED = "reduce_scatter"
"""Phase in which everybody waits for a rank that does not come."""


class Player:
    """Plays one drill.

    Args:
        drill: What happens.
        topology, profile: The job.
        run_id: Its name.
        seed: Of everything random.
        start: When it begins, seconds on the segments' clock.
        speed: Divides all durations.
        make: Makes a segment.
        bytes_known: Whether collectives tell their payload.
    """

    def __init__(
        self,
        drill: Drill,
        topology: Topology,
        profile: Profile,
        run_id: str,
        *,
        seed: int = 0,
        start: float = 0.0,
        speed: float = 1.0,
        make: Make = anonymous,
        bytes_known: bool = True,
    ) -> None:
        self.topology, self.truth, self.start = topology, drill.truth, start
        self.number = 0
        self._drill, self.run_id, self._make, self._bytes_known = drill, run_id, make, bytes_known
        self._speed = speed
        self._model = Model(topology, profile, seed)
        self._random = np.random.default_rng([seed, 1])
        self._stops = sorted(drill.stops, key=lambda stop: stop.at)
        self._attempt = 0
        self.dead: dict[int, bytes] = {}
        """What dead ranks wrote last, by rank."""
        self.fleet = self._fleet()
        self.gpus = ModelledGpus(topology.ranks)
        self.ended = False

    def _fleet(self) -> Fleet:
        created = round(self._at(self._clock) * _NS)
        return Fleet(self.topology, self.run_id, self._make, created, self._attempt, self._bytes_known)

    @property
    def _clock(self) -> float:
        return float(self._model.clock.max())

    def _at(self, seconds: float) -> float:
        """The model's clock -> the segments', seconds."""
        return self.start + seconds / self._speed

    def timeline(self) -> Iterator[tuple[float, Action]]:
        """(seconds on the segments' clock, what is to be done then), in order.

        It ends where the job stands still for good; otherwise it goes on for ever.
        """
        while True:
            while self._stops and self._stops[0].at <= self._clock:
                stop = self._stops.pop(0)
                yield from self._stop(stop)
                if stop.kind in ("hang", "die"):
                    return
            yield from self._iteration()

    def _iteration(self) -> Iterator[tuple[float, Action]]:
        moment = Moment(self._clock, self.number, self._random)
        conditions = apply(self._drill.faults, self._model.conditions(), moment)
        iteration, clocks = self._model.iteration(conditions), conditions.clocks.reshape(-1)
        number, ends = self.number, iteration.end.reshape(-1)
        self.number += 1
        per_node = self.topology.per_node
        due = np.maximum.reduceat(ends, np.arange(0, len(ends), per_node))
        for node in np.argsort(due, kind="stable").tolist():
            yield self._at(float(due[node])), self._feeding(number, iteration, clocks, node)

    def _feeding(self, number: int, iteration: Iteration, clocks: Floats, node: int) -> Action:
        ranks = self.topology.ranks_of_node(node)
        seconds = (iteration.end - iteration.begin).reshape(-1) / self._speed

        def feed() -> None:
            self.fleet.feed(number, iteration, ranks, self.start, self._speed)
            self.gpus.pass_time(ranks, clocks, seconds)

        return feed

    def _stop(self, stop: Stop) -> Iterator[tuple[float, Action]]:
        now = self._clock
        if stop.kind in ("hang", "die"):
            yield self._at(now), lambda: self._stand(stop, now)
            return
        if stop.kind == "pause":
            yield self._at(now), lambda: self._pause(stop.pause, now)
        else:
            yield self._at(now), lambda: self._die(range(self.topology.ranks))
        self._model.clock[:] = now + stop.seconds
        yield self._at(self._clock), (lambda: self._pause(None)) if stop.kind == "pause" else self._restart

    def _stand(self, stop: Stop, now: float) -> None:
        """These ranks are stuck or dead, the others wait in a collective."""
        if stop.kind == "die":
            self._die(stop.ranks)
        for rank in self.fleet.ranks:
            if rank.rank in self.dead:
                continue
            name = "backward" if rank.rank in stop.ranks else AWAITED
            rank.segment.open_phase(rank.phase(name), round(self._at(now) * _NS))

    def _die(self, ranks: Iterable[int]) -> None:
        for rank in ranks:
            segment = self.fleet.ranks[rank].segment
            self.dead[rank] = segment.snapshot()
            segment.close("failed")

    def _pause(self, kind: str | None, now: float = 0.0) -> None:
        for segment in self.fleet.segments:
            segment.pause(kind, round(self._at(now) * _NS))

    def _restart(self) -> None:
        self._attempt += 1
        self.dead.clear()
        self.fleet = self._fleet()

    def close(self) -> None:
        """The job ends well."""
        if not self.ended:
            self.ended = True
            self.fleet.close("ended")
