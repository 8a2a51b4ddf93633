"""One rank of test_stacks_torch.py's job: ``stacks_torch_job.py RANK STORE``.

It gets stuck, one after the other, in a compilation, in a data loader and in a
collective; a line on its standard input lets it go on.
"""

from __future__ import annotations

import sys
import threading
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

import argus

release = threading.Semaphore(0)


def listen() -> None:
    for _ in sys.stdin:
        release.release()


class Stopping(torch.utils.data.Dataset[Any]):
    """Gives one batch and then no other."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        if index:
            release.acquire()
        return torch.ones(1)


def never_ready(graph: Any, _inputs: Any) -> Any:
    """A backend whose code generation does not come to an end."""
    release.acquire()
    return graph.forward


def train(rank: int) -> None:
    model = torch.compile(torch.nn.Linear(4, 4), backend=never_ready)
    loader = torch.utils.data.DataLoader(Stopping(), batch_size=1, num_workers=0)
    with argus.iteration():
        if rank == 0:
            model(torch.ones(1, 4))
            batches = iter(loader)
            next(batches)
            next(batches)
        else:
            time.sleep(0.1)
    with argus.iteration():
        if rank == 1:
            release.acquire()
        dist.all_reduce(torch.ones(1))


def main() -> None:
    rank = int(sys.argv[1])
    dist.init_process_group(
        "gloo", init_method=f"file://{sys.argv[2]}", rank=rank, world_size=2, timeout=timedelta(minutes=5)
    )
    argus.init(run_id="stuck", rank=rank, world_size=2)
    threading.Thread(target=listen, daemon=True).start()
    print("ready", flush=True)
    train(rank)
    print("done", flush=True)


main()
