"""Order of the micro-batches on every pipeline stage: 1F1B, plain and interleaved.

With v model chunks a stage, chunk c of stage s is virtual stage c * p + s.
Interleaved order as in "Efficient Large-Scale Language Model Training on GPU
Clusters Using Megatron-LM" (Narayanan et al., 2021), section 2.2: chunks take
turns every p micro-batches, and (p - s - 1) * 2 + (v - 1) * p forwards come first.
"""

from __future__ import annotations

from typing import NamedTuple

from argus.drill.topology import Topology


class Step(NamedTuple):
    """One forward or backward of one micro-batch on one stage.

    Attributes:
        last: The last backward of its chunk: its gradients are then complete.
    """

    stage: int
    forward: bool
    chunk: int
    micro_batch: int
    last: bool

    @property
    def name(self) -> tuple[bool, int, int, int]:
        return (self.forward, self.chunk, self.stage, self.micro_batch)


def stage_order(topology: Topology, stage: int) -> list[Step]:
    """What a stage does in one iteration, in its order."""
    p, v, m = topology.pp, topology.chunks, topology.micro_batches
    total = m * v
    warmup = p - stage - 1 if v == 1 else (p - stage - 1) * 2 + (v - 1) * p
    warmup = min(warmup, total)

    def step(number: int, forward: bool) -> Step:
        if v == 1:
            chunk, micro_batch = 0, number
        else:
            chunk = number // p % v
            micro_batch = number // (p * v) * p + number % p
            chunk = chunk if forward else v - 1 - chunk
        return Step(stage, forward, chunk, micro_batch, not forward and micro_batch == m - 1)

    steps = [step(k, True) for k in range(warmup)]
    for k in range(total - warmup):
        steps += [step(k + warmup, True), step(k, False)]
    return steps + [step(k, False) for k in range(total - warmup, total)]


def before(topology: Topology, step: Step) -> tuple[bool, int, int, int] | None:
    """Name of the step whose output this one needs; None for the first forward."""
    p, v = topology.pp, topology.chunks
    virtual = step.chunk * p + step.stage
    if step.forward:
        if virtual == 0:
            return None
        return (True, (virtual - 1) // p, (virtual - 1) % p, step.micro_batch)
    if virtual == p * v - 1:
        return (True, step.chunk, step.stage, step.micro_batch)
    return (False, (virtual + 1) // p, (virtual + 1) % p, step.micro_batch)


def global_order(topology: Topology) -> list[Step]:
    """All steps of all stages, each after what it needs and in its stage's order."""
    waiting = [stage_order(topology, stage) for stage in range(topology.pp)]
    position = [0] * topology.pp
    done: set[tuple[bool, int, int, int]] = set()
    order: list[Step] = []
    count = sum(map(len, waiting))
    while len(order) < count:
        moved = False
        for stage, steps in enumerate(waiting):
            while position[stage] < len(steps):
                step = steps[position[stage]]
                need = before(topology, step)
                if need is not None and need not in done:
                    break
                done.add(step.name)
                order.append(step)
                position[stage] += 1
                moved = True
        if not moved:
            raise AssertionError("the schedule waits for itself")
    return order
