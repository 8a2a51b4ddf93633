"""One rank of the two-process job of test_torch_ddp.py: ``torch_job.py OUT``; writes OUT.<rank>.json.

It runs one scenario after the other. Rank 1 takes longer in its own backward
pass. What is written are, by scenario, the exclusive seconds per iteration
that the rank's segment holds for each phase, and how often each occurred.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch._dynamo.testing import CompileCounter
from torch.nn.parallel import DistributedDataParallel

import argus
import argus.torch
from argus._native import monotonic_ns, own_segments
from argus.segment.reader import read
from torch_support import Wait

QUICK, SLOW = 0.02, 0.12
ITERATIONS = 5


class Net(torch.nn.Module):
    def __init__(self, seconds: float | None, buffers: bool = False) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
        self.seconds = seconds
        if buffers:
            self.register_buffer("scale", torch.ones(1))

    def forward(self, x: Any) -> Any:
        hidden = self.first(x)
        if self.seconds is not None:  # a compiler would have to break on it
            hidden = Wait.apply(hidden, self.seconds)
        return {"y": [self.second(hidden)]}


def build(scenario: str, counter: CompileCounter) -> tuple[Any, Any]:
    """The module that the loop calls, and the one to attach, before or after torch.compile."""
    seconds = SLOW if dist.get_rank() == 1 else QUICK
    if scenario == "compiled inside":
        model = DistributedDataParallel(torch.compile(Net(None), backend=counter))
        return model, model
    if scenario == "compiled outside":
        model = torch.compile(DistributedDataParallel(Net(None)), backend=counter)
        return model, model
    if scenario == "compiled later":
        attached = DistributedDataParallel(Net(None))
        return torch.compile(attached, backend=counter), attached
    options = {"static graph": {"static_graph": True}, "unused": {"find_unused_parameters": True}}
    net = Net(seconds, buffers=scenario == "buffers")
    model = DistributedDataParallel(net, **options.get(scenario, {}))
    return model, model


def train(scenario: str) -> dict[str, Any]:
    counter = CompileCounter()
    model, attached = build(scenario, counter)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    handle = argus.torch.attach(attached, optimizer)
    x = torch.ones(4, 8)
    for _ in range(ITERATIONS + 1):  # the last one does not end: no forward follows
        if scenario == "accumulation":
            with model.no_sync():
                model(x)["y"][0].sum().backward()
        if scenario == "buffers" and dist.get_rank() == 0:
            time.sleep(QUICK)
        model(x)["y"][0].sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    (segment,) = own_segments()
    state = read(segment.snapshot(), monotonic_ns())
    phases = [phase for phase in state.phases if np.sum(phase.seconds.counts) and phase.name != "gc"]
    handle.detach()
    argus.finish()
    return {
        "frames": counter.frame_count,
        "kinds": {phase.name: phase.kind for phase in phases},
        "counts": {phase.name: int(np.sum(phase.seconds.counts)) for phase in phases},
        "seconds": {phase.name: (state.slots["phase"][:, phase.index] / 1e9).tolist() for phase in phases},
    }


def main(out: str) -> None:
    dist.init_process_group("gloo")
    scenarios = (
        "plain", "static graph", "unused", "accumulation", "buffers",
        "compiled inside", "compiled outside", "compiled later",
    )  # fmt: skip
    results = {}
    for scenario in scenarios:
        torch.manual_seed(0)
        results[scenario] = train(scenario)
    with open(f"{out}.{dist.get_rank()}.json", "w") as file:
        json.dump(results, file)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
