"""One rank of the two-process jobs of test_torch_parallel*.py: ``torch_parallel_job.py KIND FOLDER``.

KIND is ``fsdp`` or ``pipeline``.  Rank 1 takes longer in its own forward pass.
The job trains until the folder holds ``stop``; with ``hang`` there, rank 1 stays
in its next forward pass, before the collectives that rank 0 waits in, until
``stop`` comes.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import argus
import argus.torch

QUICK, SLOW = 0.01, 0.06
"""Seconds that a layer's forward takes."""
FOLDER = Path(sys.argv[2])


class Layer(torch.nn.Module):
    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.linear, self.seconds = torch.nn.Linear(16, 16), seconds

    def forward(self, x: Any) -> Any:
        while (FOLDER / "hang").exists() and dist.get_rank() == 1 and not (FOLDER / "stop").exists():
            time.sleep(0.02)
        time.sleep(self.seconds)
        return torch.relu(self.linear(x))


def batches() -> Any:
    """Endless; all ranks end at the same one."""
    while True:
        stop = torch.tensor([int((FOLDER / "stop").exists())])
        dist.all_reduce(stop)
        if stop.item():
            return
        yield torch.ones(4, 16)


def train_fsdp(seconds: float) -> None:
    from torch.distributed.fsdp import fully_shard

    model = torch.nn.Sequential(Layer(seconds), Layer(seconds))
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = argus.torch.attach(model, optimizer, batches()).dataloader
    for x in loader:
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def train_pipeline(seconds: float) -> None:
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    rank = dist.get_rank()
    layer = Layer(seconds)
    stage = PipelineStage(layer, rank, 2, torch.device("cpu"))
    schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=lambda y, target: (y - target).square().mean())
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)
    loader = argus.torch.attach(schedule, optimizer, batches()).dataloader
    for x in loader:
        if rank == 0:
            schedule.step(x)
        else:
            schedule.step(target=x)
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo")
    {"fsdp": train_fsdp, "pipeline": train_pipeline}[sys.argv[1]](SLOW if dist.get_rank() == 1 else QUICK)
    dist.destroy_process_group()
