"""A rank of the two-process job of test_stalls_torch.py: ``stalls_torch_job.py OUT``; writes OUT.<rank>.json.

Rank 1 compiles its model anew in the middle of training, as for shapes that
change, and once its compiler is reset. What is written are the exclusive seconds per
iteration that the rank's segment holds for each phase.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import argus
import argus.torch
from stalls_support import enabled, seconds, state
from torch_support import Wait

ITERATIONS = 60
COMPILING = (12, 20, 28, 36, 44, 52)
"""Iterations in which rank 1 calls its model as it never did before."""
RESET = 40
"""Iteration before which its compiler forgets everything."""


class Layers(torch.nn.Module):
    """Compiled anew for each variant."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def forward(self, x: Any, variant: str) -> Any:
        for _ in range(20):
            x = torch.relu(self.layer(x))
        return -x if variant == "none" else x


class Net(torch.nn.Module):
    """A compiled part behind one whose backward takes 10 ms."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(8, 8)
        self.layers = torch.compile(Layers(), backend="eager")

    def forward(self, x: Any, variant: str) -> Any:
        return self.layers(Wait.apply(self.first(x), 0.01), variant)


def main(out: str) -> None:
    argus.init()
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo", init_method=f"file://{out}.meeting", rank=rank, world_size=2)
    model = DistributedDataParallel(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    argus.torch.attach(model, optimizer)
    variant = "first"
    for iteration in range(ITERATIONS + 1):  # the last one does not end: no forward follows
        if rank == 1 and iteration in COMPILING:
            variant = f"from {iteration}"
        if rank == 1 and iteration == RESET:
            torch._dynamo.reset()
        model(torch.ones(2, 8), variant).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    names = [phase.name for phase in state().phases]
    result = {
        "kinds": {phase.name: phase.kind for phase in state().phases},
        "seconds": {name: seconds(name) for name in names},
        "stalls": enabled("stalls"),
    }
    with open(f"{out}.{rank}.json", "w") as file:
        json.dump(result, file)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
