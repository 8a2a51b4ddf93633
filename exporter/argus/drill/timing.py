"""Seconds of one iteration of hybrid-parallel training, for all ranks at once.

Nothing here says who waits: every step begins when its rank is free and its
input is there, every collective ends one transfer after its last member has
come, and the waits follow.  Steps are done one by one in the schedule's order,
all lanes of a stage together.

A forward step is attention, its tensor- and context-parallel exchange, the
all-to-all to the experts, the experts' mlp, and the all-to-all back; a backward
step has one compute phase and one exchange of each kind.  Receives block their
rank, sends don't.  The gradients of a chunk are reduced in buckets while its
last backward runs; the parameters are gathered after the optimizer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Set
from dataclasses import dataclass, field

import numpy as np

from argus.drill.conditions import COMPUTE, STALLS, Conditions, Floats
from argus.drill.schedule import Step, before, global_order
from argus.drill.topology import Indices, Topology


@dataclass(frozen=True)
class Profile:
    """How a healthy job spends its time.

    Attributes:
        iteration: Seconds of an iteration, about.
        noise: Standard deviation of the logarithm of every compute step.
        device_noise: The same between devices, constant for a run.
        link_noise: The same of transfers.
        hiccups: Share of compute steps that take longer by a heavy-tailed factor, up to twenty times.
        gaps: Time between kernels, as a share of compute time.
        shares: Seconds of each part as a share of one forward and backward of a micro-batch: compute
            phases, one exchange of each parallel dimension, one transfer between stages.
        reduction, gather, optimizer, loading: The parts that come once, as shares of the iteration.
        buckets: Gradient buckets of a chunk.
    """

    iteration: float = 2.0
    noise: float = 0.02
    device_noise: float = 0.01
    link_noise: float = 0.05
    hiccups: float = 0.0
    gaps: float = 0.01
    shares: dict[str, float] = field(
        default_factory=lambda: {
            "attention": 0.12, "mlp": 0.2, "backward": 0.6, "tp": 0.02, "cp": 0.02, "ep": 0.02, "pp": 0.02,
        }
    )  # fmt: skip
    reduction: float = 0.06
    gather: float = 0.04
    optimizer: float = 0.03
    loading: float = 0.005
    buckets: int = 4

    def step(self, topology: Topology) -> float:
        """Seconds of one forward and backward of a micro-batch on one chunk."""
        chunks, stages = topology.chunks, topology.pp
        once = self.gather + self.optimizer + self.loading + self.reduction / self.buckets / chunks
        return self.iteration * (1 - once) / (topology.micro_batches * chunks + stages - 1)


BYTES_PER_SECOND = {"tp": 300e9, "cp": 100e9, "ep": 40e9, "dp": 40e9, "pp": 25e9}
"""Bandwidth of a healthy transfer: what turns its seconds into bytes."""


_TAIL = 1.5
"""Exponent of the hiccups' tail: finite mean, infinite variance."""


@dataclass
class Channel:
    """One operation of all communicators of a group.

    Attributes:
        op, group: As in the catalogue; for pp it is one end's view of the pairs of neighbouring stages.
        end: For pp, 1: the pair with the next stage, -1: with the one before; otherwise 0.
        seconds: (occurrences, stages, lanes), waiting included; a stage that has no part in it: NaN.
        bytes: Payload of each occurrence.
    """

    op: str
    group: str
    end: int
    seconds: Floats
    bytes: int

    def members(self, topology: Topology, rank: int) -> list[int]:
        """Ranks of the communicator in which a rank sees it, ascending."""
        if not self.end:
            return topology.members(self.group, rank)
        pipeline = topology.pipeline(rank)
        return sorted((rank, pipeline[(topology.stage(rank) + self.end) % topology.pp]))

    def group_id(self, members: list[int]) -> str:
        """Name of the communicator with these members."""
        return "-".join(map(str, (self.group, *(members if self.end else members[:1]))))


@dataclass
class Iteration:
    """One iteration; arrays are (stages, lanes) in seconds.

    Attributes:
        phases: Exclusive seconds by phase.
        channels: What was communicated.
        begin, end: On the model's clock.
        units, data_dependent: As in the conditions.
    """

    phases: dict[str, Floats]
    channels: list[Channel]
    begin: Floats
    end: Floats
    units: dict[str, Floats] = field(default_factory=dict)
    data_dependent: Set[str] = frozenset()


class Model:
    """A job's clock, iteration by iteration.

    Args:
        topology: Who works with whom.
        profile: How long it takes.
        seed: Of everything random.
        start: Clock of the first iteration's begin, seconds.
    """

    def __init__(self, topology: Topology, profile: Profile, seed: int = 0, start: float = 0.0) -> None:
        self.topology, self.profile = topology, profile
        self.random = np.random.default_rng(seed)
        shape = (topology.pp, topology.lanes)
        self.clock: Floats = np.full(shape, start)
        self._devices = np.exp(profile.device_noise * self.random.standard_normal(shape))
        self._order = global_order(topology)
        self._step = profile.step(topology)

    def conditions(self) -> Conditions:
        """Healthy ones, to be changed."""
        return Conditions(self.topology, self.profile.gaps)

    def iteration(self, conditions: Conditions) -> Iteration:
        """The next iteration under these conditions; moves the clock."""
        return _Run(self, conditions).iterate()


class _Run:
    """One iteration in the making."""

    def __init__(self, model: Model, conditions: Conditions) -> None:
        self._model, self._conditions = model, conditions
        self._topology, self._profile = model.topology, model.profile
        self._random = model.random
        shape = (self._topology.pp, self._topology.lanes)
        self._free = model.clock.copy()
        self._phases = {name: np.zeros(shape) for name in (*STALLS, *COMPUTE, "gpu_idle")}
        self._ready: dict[tuple[bool, int, int, int], Floats] = {}
        self._seen: dict[tuple[str, str, int], dict[int, list[Floats]]] = defaultdict(
            lambda: defaultdict(list)
        )
        self._healthy: dict[tuple[str, str, int], float] = {}
        self._buckets: list[list[Floats]] = [[] for _ in range(self._topology.pp)]
        self._last = {s.stage: s for s in model._order if not s.forward}

    def iterate(self) -> Iteration:
        """All of it."""
        for stage in range(self._topology.pp):
            loading = self._profile.loading * self._profile.iteration * self._noise(self._profile.noise)
            self._stall(stage, "data_loading", loading + self._conditions.stalls["data_loading"][stage])
            self._stall(stage, "gc", self._conditions.stalls["gc"][stage])
        for step in self._model._order:
            self._do(step)
        for stage in range(self._topology.pp):
            self._finish(stage)
        begin = self._model.clock
        self._model.clock = self._free
        channels = [self._channel(key, stages) for key, stages in self._seen.items()]
        said = self._conditions
        return Iteration(self._phases, channels, begin, self._free.copy(), said.units, said.data_dependent)

    def _noise(self, sigma: float, size: int | None = None) -> Floats:
        return np.exp(sigma * self._random.standard_normal(size or self._topology.lanes))

    def _stall(self, stage: int, phase: str, seconds: Floats) -> None:
        self._phases[phase][stage] += seconds
        self._free[stage] += seconds

    def _do(self, step: Step) -> None:
        stage = step.stage
        self._receive(step)
        if step is self._last[stage]:
            self._stall(stage, "jit_compile", self._conditions.stalls["jit_compile"][stage])
        work = self._conditions.work[step.micro_batch]
        if step.forward:
            self._compute(stage, "attention", work)
            self._exchange(stage, "tp", "all_reduce")
            self._exchange(stage, "cp", "all_gather")
            self._exchange(stage, "ep", "all_to_all")
            self._compute(stage, "mlp", work)
            self._exchange(stage, "ep", "all_to_all")
        else:
            begin = self._free[stage].copy()
            self._compute(stage, "backward", work)
            if step.last:
                share = np.linspace(0, 1, self._profile.buckets + 1)[1:]
                self._buckets[stage] += [begin + part * (self._free[stage] - begin) for part in share]
            self._exchange(stage, "tp", "all_reduce")
            self._exchange(stage, "cp", "reduce_scatter")
            self._exchange(stage, "ep", "all_to_all")
        self._ready[step.name] = self._free[stage].copy()

    def _receive(self, step: Step) -> None:
        """Wait for the input; both ends see the transfer."""
        need = before(self._topology, step)
        if need is None:
            return
        sent, stage, source = self._ready.pop(need), step.stage, need[2]
        if source == stage:
            np.maximum(self._free[stage], sent, out=self._free[stage])
            return
        posted = self._free[stage]
        edge = self._conditions.edges[source if step.forward else stage]
        healthy = self._profile.shares["pp"] * self._model._step
        done = np.maximum(posted, sent) + healthy * edge * self._noise(self._profile.link_noise)
        op = "forward_transfer" if step.forward else "backward_transfer"
        way = 1 if step.forward else -1
        self._note((op, "pp", way), source, done - sent, healthy)
        self._note((op, "pp", -way), stage, done - posted, healthy)
        self._free[stage] = done

    def _compute(self, stage: int, phase: str, work: Floats | float = 1.0) -> None:
        if phase == "optimizer":
            seconds = self._profile.optimizer * self._profile.iteration
        else:
            seconds = self._profile.shares[phase] * self._model._step
        device = self._model._devices[stage] * self._conditions.compute[phase][stage]
        own = seconds * work * device * self._noise(self._profile.noise)
        if self._profile.hiccups:
            hit = self._random.random(self._topology.lanes) < self._profile.hiccups
            own = np.where(
                hit, own * np.minimum(1 + self._random.pareto(_TAIL, self._topology.lanes), 20), own
            )
        gap = seconds * work * self._conditions.gaps[stage] * self._noise(self._profile.noise)
        self._phases[phase][stage] += own
        self._phases["gpu_idle"][stage] += gap
        self._free[stage] += own + gap

    def _exchange(self, stage: int, group: str, op: str) -> None:
        healthy = self._profile.shares[group] * self._model._step
        self._free[stage] = self._meet(stage, group, op, self._free[stage], healthy)

    def _meet(self, stage: int, group: str, op: str, posted: Floats, healthy: float) -> Floats:
        """When a collective that lanes come to at ``posted`` is over for each of them."""
        groups: Indices = self._topology.lane_groups[group]
        if groups.shape[1] == 1:
            return posted
        transfer = healthy * self._conditions.links[group][stage]
        ends = posted[groups].max(axis=1) + transfer * self._noise(self._profile.link_noise, len(groups))
        end = np.empty_like(posted)
        end[groups] = ends[:, None]
        self._note((op, group, 0), stage, end - posted, healthy)
        return end

    def _finish(self, stage: int) -> None:
        """Reduce the gradients, step, gather the parameters."""
        buckets = self._buckets[stage]
        reduced = self._model.clock[stage]
        each = self._profile.reduction * self._profile.iteration / len(buckets)
        for ready in buckets:
            reduced = self._meet(stage, "dp", "reduce_scatter", np.maximum(ready, reduced), each)
        self._free[stage] = np.maximum(self._free[stage], reduced)
        self._compute(stage, "optimizer")
        gather = self._profile.gather * self._profile.iteration
        self._free[stage] = self._meet(stage, "dp", "all_gather", self._free[stage], gather)

    def _note(self, key: tuple[str, str, int], stage: int, seconds: Floats, healthy: float) -> None:
        self._seen[key][stage].append(seconds)
        self._healthy[key] = healthy

    def _channel(self, key: tuple[str, str, int], stages: dict[int, list[Floats]]) -> Channel:
        op, group, end = key
        occurrences = max(map(len, stages.values()))
        seconds = np.full((occurrences, self._topology.pp, self._topology.lanes), np.nan)
        for stage, seen in stages.items():
            seconds[: len(seen), stage] = seen
        size = self._healthy[key] * BYTES_PER_SECOND[group]
        return Channel(op, group, end, seconds, round(size))
