"""One rank of the job of test_flight_torch.py: trains until a line comes in on standard input."""

from __future__ import annotations

import select
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import argus
import argus.torch
from torch_support import Wait


class Net(torch.nn.Module):
    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
        self.seconds = seconds

    def forward(self, x: Any) -> Any:
        return self.second(Wait.apply(self.first(x), self.seconds))


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(Net(0.02 if rank == 1 else 0.001))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    argus.torch.attach(model, optimizer)
    done = 0
    stop = torch.zeros(1)
    while not stop.item():
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        stop[0] = float(rank == 0 and bool(select.select([sys.stdin], [], [], 0)[0]))
        with argus.collective("all_reduce", "world", bytes=4):
            dist.all_reduce(stop)
        done += 1
        if done == 12:
            print(f"ready {rank}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
