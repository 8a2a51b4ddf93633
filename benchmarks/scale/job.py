"""A drill, computed iteration by iteration and written node by node, so that memory holds few segments."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from argus.drill.command import settings_of
from argus.drill.faults import Moment, apply
from argus.drill.fleet import FleetRank, anonymous
from argus.drill.scenario import Drill
from argus.drill.scenarios import SCENARIOS
from argus.drill.timing import Iteration, Model, Profile
from argus.drill.topology import Topology
from argus.drill.truth import Claim, Truth
from argus.exporter.collectors import RANK_COLLECTORS
from argus.exporter.registry import Registry
from argus.exporter.selection import Series
from argus.exporter.sources import MemorySource
from benchmarks.scale.beside import Beside

EPOCH_NS = 10**15
"""The model's begin on the segments' clock."""


@dataclass(frozen=True)
class Job:
    """One run.

    Attributes:
        run_id: Its name.
        scenario: A scenario of ``argus drill`` in which the job goes on, however slowly.
        topology: Its sizes.
        since: Seconds from its begin to the fault.
        seed: Of everything random.
        profile: Its times.
        speed: Divides all durations, for a test that can't wait.
    """

    run_id: str
    scenario: str
    topology: Topology
    since: float
    seed: int = 0
    profile: Profile = field(default_factory=Profile)
    speed: float = 1.0

    @cached_property
    def drill(self) -> Drill:
        scenario = SCENARIOS[self.scenario]
        drill = scenario.build(settings_of(scenario, self.topology, self.profile, None, None, self.since))
        if drill.stops:
            raise ValueError(f"scenario {self.scenario} stops the job, which this can't play")
        return drill

    @property
    def truth(self) -> Truth:
        """What must be said; of a rank that computes slowly, its kernels may be named as well."""
        truth = self.drill.truth
        ranks = {
            value for claim in truth.must for name, value in claim.labels
            if name == "rank" and claim.alert == "ArgusComputeStraggler"
        }  # fmt: skip
        kernels = tuple(Claim.of("ArgusKernelDistributionShift", rank=rank) for rank in sorted(ranks))
        return replace(truth, may=(*truth.may, *kernels))

    def timeline(self, until: float) -> list[Iteration]:
        """All iterations that begin before ``until`` (s of the model)."""
        model = Model(self.topology, self.profile, self.seed)
        random = np.random.default_rng([self.seed, 1])
        iterations: list[Iteration] = []
        while model.clock.max() < until:
            moment = Moment(float(model.clock.max()), len(iterations), random)
            conditions = apply(self.drill.faults, model.conditions(), moment)
            iterations.append(_compact(model.iteration(conditions)))
        return iterations


def _compact(iteration: Iteration) -> Iteration:
    """The durations in single precision, which is a tenth of a microsecond of a second."""
    phases = {name: seconds.astype(np.float32) for name, seconds in iteration.phases.items()}
    channels = [replace(c, seconds=c.seconds.astype(np.float32)) for c in iteration.channels]
    return replace(iteration, phases=phases, channels=channels)


class Node:
    """The ranks of one node, and the exporter that serves these series of them."""

    def __init__(self, job: Job, iterations: list[Iteration], node: int, series: Series = Series.ALL) -> None:
        topology = job.topology
        self._iterations, self._fed, self._speed = iterations, 0, job.speed
        self._ranks = [
            FleetRank(
                topology, rank, anonymous(run_id=job.run_id, created=EPOCH_NS, **topology.identity(rank))
            )
            for rank in topology.ranks_of_node(node)
        ]
        ranks = np.array(topology.ranks_of_node(node))
        self._due = [float(iteration.end.reshape(-1)[ranks].max()) for iteration in iterations]
        self._beside = Beside(job.seed, self._ranks)
        self._registry = Registry(
            MemorySource([rank.segment for rank in self._ranks]),
            collectors={**RANK_COLLECTORS, "beside": self._beside.collect},
            series=series,
            version="bench",
        )

    def families(self, now: float) -> list:
        """What the exporter collects at this time (s), later than all before."""
        while self._fed < len(self._iterations) and self._due[self._fed] <= now * self._speed:
            iteration = self._iterations[self._fed]
            for rank in self._ranks:
                rank.feed(self._fed, iteration, EPOCH_NS / 1e9, self._speed, True)
            self._beside.iterate(iteration)
            self._fed += 1
        return self._registry.collect(EPOCH_NS + round(now * 1e9))

    def close(self) -> None:
        for rank in self._ranks:
            rank.segment.close()
