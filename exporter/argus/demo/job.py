"""The demo's training script, one process per rank, started by torchrun.

It is an ordinary DDP loop; ``argus.torch.attach`` is the one line that ARGUS
needs.  The rest of what is unusual obeys the demo's order to be slow.

Usage: ``torchrun … -m argus.demo.job CONTROL_DIRECTORY``
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

import argus
import argus.torch
from argus.demo.control import Report, ordered, report
from argus.demo.measure import typical_seconds
from argus.demo.workload import BATCH, Load, Model, Samples
from argus.prometheus.launcher import die_with_parent

EPOCH_BATCHES = 1_000_000

LEAST_ADDED_SHARE = 0.1
"""The fault adds at least this share of the iteration: five times what ARGUS takes for noise."""


def main(control: Path) -> None:
    """Train until terminated."""
    die_with_parent(os.getppid())
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    torch.manual_seed(0)

    load = Load()
    model = DistributedDataParallel(Model(load))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    dataloader = DataLoader(Samples(load, EPOCH_BATCHES, seed=rank), batch_size=BATCH)

    argus.torch.attach(model, optimizer, dataloader)

    for x, y in dataloader:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if not load.extra:
            _obey(control, rank, load)


def _obey(control: Path, rank: int, load: Load) -> None:
    fault = ordered(control)
    if fault is None or fault.rank != rank:
        return
    normal, iteration = typical_seconds(fault.phase)
    added = max((fault.factor - 1) * normal, normal, LEAST_ADDED_SHARE * iteration)
    load.extra[fault.phase] = added
    report(control, Report(time.time(), normal, added, iteration))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
