"""One rank of a parallel torch job that trains with and without ARGUS in turn: ``parallel.py KIND ROUNDS``.

KIND is ddp, fsdp, pipeline or collectives.  Rank 0 prints JSON: seconds per iteration by
round, ``without`` and ``with``, of ``wall`` time and of the loop's thread's ``cpu`` time.
What ARGUS attaches is taken off again between.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

import argus
import argus.torch

WIDTH, LAYERS, BATCH, ITERATIONS = 512, 4, 64, 12


def layers() -> torch.nn.Sequential:
    return torch.nn.Sequential(
        *(torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU()) for _ in range(LAYERS))
    )


def step_of(model: Any, optimizer: torch.optim.Optimizer) -> Callable[[], None]:
    x = torch.ones(BATCH, WIDTH)

    def step() -> None:
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def ddp() -> tuple[Any, torch.optim.Optimizer, Callable[[], None]]:
    model = torch.nn.parallel.DistributedDataParallel(layers())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    return model, optimizer, step_of(model, optimizer)


def fsdp() -> tuple[Any, torch.optim.Optimizer, Callable[[], None]]:
    from torch.distributed.fsdp import fully_shard

    model = layers()
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    return model, optimizer, step_of(model, optimizer)


def pipeline() -> tuple[Any, torch.optim.Optimizer, Callable[[], None]]:
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    rank, model = dist.get_rank(), layers()
    stage = PipelineStage(model, rank, dist.get_world_size(), torch.device("cpu"))
    schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=lambda y, target: (y - target).square().mean())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    x = torch.ones(BATCH, WIDTH)

    def step() -> None:
        schedule.step(*([x] if rank == 0 else []), **({} if rank == 0 else {"target": x}))
        optimizer.step()
        optimizer.zero_grad()

    return schedule, optimizer, step


def collectives() -> tuple[None, None, Callable[[], None]]:
    """A hundred of the cheapest operations: what one costs is a hundredth."""
    x = torch.ones(1)

    def step() -> None:
        for _ in range(100):
            dist.all_reduce(x)

    return None, None, step


KINDS: dict[str, Callable[[], tuple[Any, Any, Callable[[], None]]]] = {
    "ddp": ddp, "fsdp": fsdp, "pipeline": pipeline, "collectives": collectives,
}  # fmt: skip


def measure(step: Callable[[], None]) -> tuple[float, float]:
    """Wall and CPU seconds per iteration, all ranks beginning together."""
    step()
    dist.barrier()
    wall, cpu = time.perf_counter(), time.thread_time()
    for _ in range(ITERATIONS):
        step()
    return (time.perf_counter() - wall) / ITERATIONS, (time.thread_time() - cpu) / ITERATIONS


def main(kind: str, rounds: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    argus.init()
    assert argus.status()["enabled"], argus.status()["reason"]
    model, optimizer, step = KINDS[kind]()
    taken: dict[str, dict[str, list[float]]] = {
        clock: {"without": [], "with": []} for clock in ("wall", "cpu")
    }

    def keep(way: str, seconds: tuple[float, float]) -> None:
        for clock, value in zip(("wall", "cpu"), seconds, strict=True):
            taken[clock][way].append(value)

    def traced() -> None:
        handle = argus.torch.attach(model, optimizer)
        keep("with", measure(step))
        assert handle.active, handle.reason
        handle.detach()

    def untraced() -> None:
        keep("without", measure(step))

    measure(step)  # warm
    for number in range(rounds):  # each goes first as often as the other
        for way in (untraced, traced) if number % 2 else (traced, untraced):
            way()
    if dist.get_rank() == 0:
        print(json.dumps(taken))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
