"""One process of ``gpu_training``: a training step, with ARGUS, with torch.profiler, or with nothing.

Reads commands as lines of JSON and answers each with one: ``{"do": "steps", "count": 20}`` -> seconds of so
many steps; ``{"do": "check", "count": 20}`` -> seconds per phase by CUDA events and by ARGUS.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

SECONDS_FOR_RECORDS = 20.0
"""Longest wait for CUPTI to hand over the last kernels; it does so within a second."""


class Plain:
    """Nothing but the step."""

    def __init__(self, device: str) -> None:
        import torch

        self.torch, self.device = torch, device

    def synchronize(self) -> None:
        if self.device == "cuda":
            self.torch.cuda.synchronize()

    def iteration(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def phase(self, name: str) -> AbstractContextManager[Any]:
        return nullcontext()

    def block(self) -> AbstractContextManager[Any]:
        """Around a block of steps; not part of their time."""
        return nullcontext()

    def status(self) -> dict[str, Any]:
        return {}


class Profiler(Plain):
    """torch.profiler records all the time; starting it and collecting its events are not counted."""

    def block(self) -> AbstractContextManager[Any]:
        activities = [self.torch.profiler.ProfilerActivity.CPU]
        if self.device == "cuda":
            activities.append(self.torch.profiler.ProfilerActivity.CUDA)
        profiler: AbstractContextManager[Any] = self.torch.profiler.profile(activities=activities)
        return profiler


class Argus(Plain):
    """Everything on.  ARGUS starts before CUDA does."""

    def __init__(self, device: str) -> None:
        import argus

        argus.init(run_id=f"bench-gpu-{os.getpid()}", rank=0, world_size=1)
        super().__init__(device)
        self.argus = argus

    def iteration(self) -> AbstractContextManager[Any]:
        context: AbstractContextManager[Any] = self.argus.iteration()
        return context

    def phase(self, name: str) -> AbstractContextManager[Any]:
        context: AbstractContextManager[Any] = self.argus.phase(name, kind="compute")
        return context

    def status(self) -> dict[str, Any]:
        device = self.state().device
        return {
            "tracer": self.argus.status(),
            "attribution": device.attribution if device is not None else None,
            "incomplete_iterations": device.incomplete if device is not None else None,
            "dropped": device.dropped if device is not None else None,
        }

    def state(self) -> Any:
        from argus import _native
        from argus.segment.reader import read

        return read(_native.own_segments()[0].snapshot(), _native.monotonic_ns())

    def seconds(self, first: int, last: int, wait: float) -> dict[str, float] | None:
        """By phase, over the iterations of these ordinals; None where ARGUS could not tell all of them."""
        until = time.monotonic() + wait
        while True:
            state = self.state()
            slots = state.slots[(state.slots["ordinal"] >= first) & (state.slots["ordinal"] <= last)]
            on_host = state.device is None
            if len(slots) == last - first + 1 and (on_host == (self.device == "cpu")):
                kinds = {"compute", "mixed"}
                phases = [phase for phase in state.phases if phase.kind in kinds]
                return {phase.name: float(slots["phase"][:, phase.index].sum()) / 1e9 for phase in phases}
            if time.monotonic() > until:
                return None
            time.sleep(0.2)


class Clock:
    """Seconds per phase as CUDA's own events say; on the CPU, as its clock says."""

    def __init__(self, worker: Argus) -> None:
        self.worker = worker
        self.marks: list[tuple[str, Any, Any]] = []

    def mark(self) -> Any:
        if self.worker.device == "cpu":
            return time.perf_counter()
        event = self.worker.torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        begin = self.mark()
        with self.worker.phase(name):
            yield
        self.marks.append((name, begin, self.mark()))

    def seconds(self) -> dict[str, float]:
        self.worker.synchronize()
        total: dict[str, float] = {}
        for name, begin, end in self.marks:
            took = end - begin if self.worker.device == "cpu" else begin.elapsed_time(end) / 1e3
            total[name] = total.get(name, 0.0) + took
        return total


def check(worker: Argus, step: Any, count: int) -> dict[str, Any]:
    """Device seconds by phase over ``count`` iterations, both ways."""
    worker.synchronize()
    clock = Clock(worker)
    before = worker.argus.status()["iterations"]
    for _ in range(count):
        with worker.iteration():
            step(clock.phase)
    events = clock.seconds()
    argus = worker.seconds(before + 1, before + count, SECONDS_FOR_RECORDS)
    return {"events": events, "argus": argus, **worker.status()}


def steps(worker: Plain, step: Any, count: int) -> float:
    """Wall seconds of ``count`` steps."""
    with ExitStack() as stack:
        stack.enter_context(worker.block())
        worker.synchronize()
        begin = time.perf_counter()
        for _ in range(count):
            with worker.iteration():
                step(worker.phase)
        worker.synchronize()
        return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description="see benchmarks/gpu_training.py")
    parser.add_argument("mode", choices=("off", "argus", "profiler"))
    parser.add_argument("device")
    parser.add_argument("size")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--graph", action="store_true")
    args = parser.parse_args()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever torch prints goes elsewhere
    kinds: dict[str, type[Plain]] = {"off": Plain, "argus": Argus, "profiler": Profiler}
    worker = kinds[args.mode](args.device)
    from benchmarks.gpu_model import Size, build

    step, phases = build(Size(**json.loads(args.size)), args.device, compiled=args.compile, graph=args.graph)
    steps(worker, step, 5)

    def answer(value: dict[str, Any]) -> None:
        print(json.dumps(value), file=answers, flush=True)

    answer({"phases": phases})
    for line in sys.stdin:
        command = json.loads(line)
        if command["do"] == "steps":
            answer({"seconds": steps(worker, step, command["count"])})
        elif isinstance(worker, Argus):
            answer(check(worker, step, command["count"]))


if __name__ == "__main__":
    main()
