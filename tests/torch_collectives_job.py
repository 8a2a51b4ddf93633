"""One rank of the two-process job of test_torch_collectives.py: ``torch_collectives_job.py OUT``.

Writes OUT.<rank>.json: what the rank's segment holds after each scenario, and
what the scenario itself has seen.
"""

from __future__ import annotations

import datetime
import faulthandler
import itertools
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.distributed.flight_recorder.components.loader import read_dump

import argus
from argus._native import monotonic_ns, own_segments
from argus.segment.beside import torch_record
from argus.segment.reader import read
from argus.torch import collectives
from argus.torch.standstill import Standstill

LATE_S = 0.3
N = 1000
meetings = itertools.count()


def late() -> None:
    """Rank 1 comes later to what follows."""
    rank, number = dist.get_rank(), next(meetings)
    Path(f"{sys.argv[1]}.meet{number}.{rank}").touch()
    while not Path(f"{sys.argv[1]}.meet{number}.{1 - rank}").exists():
        time.sleep(0.001)
    if rank == 1:
        time.sleep(LATE_S)


def blocking() -> dict[str, Any]:
    x, two = torch.ones(N), torch.ones(2 * N)
    late()
    dist.all_reduce(x)
    dist.all_gather_into_tensor(two, x)
    dist.all_gather([x, x.clone()], x)
    dist.reduce_scatter_tensor(x, two)
    dist.broadcast(x, 0)
    dist.barrier()
    dist.all_gather_object([None, None], "object")
    return {}


def asynchronous() -> dict[str, Any]:
    x = torch.ones(N)
    late()
    work = dist.all_reduce(x, async_op=True)
    time.sleep(0.02)  # the host does something else meanwhile
    late_work = dist.all_reduce(torch.ones(N), async_op=True)
    work.wait()
    late_work.wait()
    late_work.wait()  # once more does no harm
    forgotten = dist.all_reduce(torch.ones(N), async_op=True)
    while not forgotten.is_completed():
        time.sleep(0.005)
    return {"sum": float(x.sum())}


def pairs() -> dict[str, Any]:
    x = torch.ones(N)
    other = 1 - dist.get_rank()
    late()
    if dist.get_rank():
        dist.send(x, other)
    else:
        dist.recv(x)  # from anybody
    swap = [dist.P2POp(dist.isend, x, other), dist.P2POp(dist.irecv, torch.empty(N), other)]
    for work in dist.batch_isend_irecv(swap):
        work.wait()
    return {}


def groups() -> dict[str, Any]:
    group = dist.new_group([0, 1])
    alone = dist.new_group([0])
    dist.all_reduce(torch.ones(N), group=group)
    if dist.get_rank() == 0:
        dist.all_reduce(torch.ones(N), group=alone)
    look()
    dist.destroy_process_group(group)
    dist.all_reduce(torch.ones(N))
    return {}


def functionals() -> dict[str, Any]:
    """Eager, compiled, and through autograd; graphs as they are without ARGUS."""

    def sharded(x: Any) -> Any:
        dist.all_reduce(x)
        return functional.all_reduce(x * 2, "sum", dist.group.WORLD) + 1

    late()
    eager = functional.all_reduce(torch.zeros(N), "sum", dist.group.WORLD) + 1
    traced, untraced = CompileCounterWithBackend("aot_eager"), CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(sharded, backend=traced)(torch.ones(4))
    end = collectives._active
    assert end is not None
    end.off = True  # as without
    torch._dynamo.reset()
    torch.compile(sharded, backend=untraced)(torch.ones(4))
    end.off = False
    leaf = torch.ones(4, requires_grad=True)
    torch.distributed.nn.functional.all_reduce(leaf * 3).sum().backward()
    return {
        "eager": float(eager.sum()),
        "compiled": float(compiled.sum()),
        "gradient": leaf.grad.tolist() if leaf.grad is not None else None,
        "graphs": [traced.frame_count, untraced.frame_count],
    }


def reducer() -> dict[str, Any]:
    """DDP's collectives are called by C++ from C++."""
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    for _ in range(3):
        model(torch.ones(2, 4)).sum().backward()
    return {}


def failing() -> dict[str, Any]:
    """A wait that raises, as a timeout does."""
    if dist.get_rank() == 1:
        time.sleep(0.3)
        dist.all_reduce(torch.ones(N))
        return {}
    work = dist.all_reduce(torch.ones(N), async_op=True)
    try:
        work.wait(datetime.timedelta(milliseconds=20))
    except RuntimeError as error:
        raised = type(error).__name__
    else:
        raised = ""
    work.wait()
    return {"raised": raised}


def broken() -> dict[str, Any]:
    """Something inside fails: the program does not notice."""
    active: Any = collectives._active
    active.communicators.group = None
    x = torch.ones(N)
    dist.all_reduce(x)
    del active.communicators.group
    return {"sum": float(x.sum()), "off": active.off}


def standing() -> dict[str, Any]:
    """Nothing moves: torch's flight record is written, once, and torch's tool reads it."""
    dist.all_reduce(torch.ones(N))
    look()
    (segment,) = own_segments()
    path = torch_record(Path(segment.path or ""))
    assert path is not None
    standstill = Standstill(after_s=0.05)
    standstill.look(segment, 7)
    early = path.exists()
    deadline = time.monotonic() + 30
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
        standstill.look(segment, 7)
    dump = read_dump("run.torch_fr_", str(path))
    path.unlink()
    time.sleep(0.1)
    standstill.look(segment, 7)
    entries: Any = dump["entries"]
    return {
        "early": early, "again": path.exists(), "rank": dump["rank"],
        "last": [entries[-1]["profiling_name"], entries[-1]["process_group"][1]],
    }  # fmt: skip


def again() -> dict[str, Any]:
    """torch.distributed ended and begun anew."""
    rank = dist.get_rank()
    dist.destroy_process_group()
    dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}.store", rank=rank, world_size=2)
    dist.all_reduce(torch.ones(N))
    return {}


def look() -> None:
    watching = collectives._watching
    assert watching is not None
    watching.look()


def settled() -> list[int]:
    """Operations enqueued and completed, once both ranks see all of them completed.

    Gloo counts an operation after those that wait for it go on, and its two threads may count an older one
    last: only the next operation mends that.
    """
    while True:
        look()
        enqueued, completed = found()["sequence"]
        agreed = torch.tensor(int(completed == enqueued))
        dist.all_reduce(agreed, dist.ReduceOp.MIN)
        if agreed:
            return [enqueued, completed]
        time.sleep(0.01)


def found() -> dict[str, Any]:
    """The segment's phases and collectives by operation."""
    (segment,) = own_segments()
    state = read(segment.snapshot(), monotonic_ns())

    def numbers(group_id: str) -> list[int]:
        known = [one for one in state.collectives if one.group_id == group_id]
        return [
            max((one.enqueued for one in known), default=0),
            max((one.completed for one in known), default=0),
        ]

    return {
        "phases": {one.name: [one.kind, one.seconds.count, one.seconds.sum_ns / 1e9] for one in state.phases},
        "collectives": {
            f"{one.op} {one.group_id}": [one.members, one.nodes, one.seconds.count, one.bytes]
            for one in state.collectives
        },
        "sequence": numbers("dp-0"),
        "pair": numbers("dp-0-1"),
    }


def run(scenario: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    argus.init()
    before = dict(dist.ProcessGroup.__dict__)
    end, second = collectives.trace_collectives(), collectives.trace_collectives()
    try:
        told = scenario()
        dist.barrier()
        look()
        return {**found(), **told, "settled": settled()}
    finally:
        second()
        second()  # once more does nothing
        assert collectives._active is not None
        end()
        assert collectives._active is None
        assert dict(dist.ProcessGroup.__dict__) == before
        argus.finish()


def main(out: str) -> None:
    faulthandler.dump_traceback_later(120, exit=True)
    dist.init_process_group("gloo")
    scenarios = (
        blocking, asynchronous, pairs, groups, functionals, reducer, failing, broken, standing, again,
    )  # fmt: skip
    results = {scenario.__name__: run(scenario) for scenario in scenarios}
    with open(f"{out}.{dist.get_rank()}.json", "w") as file:
        json.dump(results, file)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
