"""What sampling stacks costs the program that is sampled, on and off in turn.

    python -m benchmarks.bench_stacks [--rounds N] [--cpu N]

A round does the same work without and with the sampler, in changing order, on
one pinned CPU; rounds are compared one by one (``paired.py``).  CPU seconds of
the whole process count, the sampler's thread with it: on a machine that others
use too, they move less than the wall clock.  For comparison the busy loop is
also sampled by a Python thread that calls sys._current_frames() as often, which
takes the GIL from the loop each time.  Prints JSON.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial

from argus import _native
from benchmarks.paired import change, percent

Work = Callable[[], object]
Ways = dict[str, Callable[[], AbstractContextManager[None]]]
BLOCK_S = 0.5
HZ = 20
"""The default is 10; what a sample costs does not depend on it."""
FRAMES = 30
"""Depth of the stack in which the work is done, as in a training script with a few layers of libraries."""


@contextmanager
def sampler(hz: float) -> Iterator[None]:
    """ARGUS's own."""
    segment = _native.Segment(None, run_id="bench", rank=0, stacks=True)
    _native.stacks_start(segment, threading.get_ident(), hz)
    try:
        yield
    finally:
        _native.stacks_stop()
        segment.close()


@contextmanager
def python_thread(hz: float) -> Iterator[None]:
    """The usual way."""
    end = threading.Event()

    def run() -> None:
        while not end.wait(1 / hz):
            for frame in sys._current_frames().values():
                at = frame
                while at is not None:
                    at.f_code.co_name  # noqa: B018
                    at = at.f_back

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


def deep(work: Work, levels: int = FRAMES) -> float:
    """CPU seconds of the process for the work, done so deep in calls."""
    if levels:
        return deep(work, levels - 1)
    begin = time.process_time()
    work()
    return time.process_time() - begin


def spin(seconds: float) -> None:
    """Keep the CPU busy."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def busy(count: int) -> Work:
    def loop() -> int:
        total = 0
        for number in range(count):
            total += number & 7
        return total

    return loop


def torch_steps(count: int) -> Work:
    """Steps of a small model on one core."""
    import torch

    torch.set_num_threads(1)
    model = torch.nn.Sequential(*(torch.nn.Linear(128, 128) for _ in range(6)))
    optimizer = torch.optim.Adam(model.parameters())
    batch = torch.randn(32, 128)

    def steps() -> None:
        for _ in range(count):
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()

    return steps


def sized(make: Callable[[int], Work]) -> Work:
    """As much work as takes about a block."""
    count = 8
    deep(make(count))
    while (took := deep(make(count))) < BLOCK_S / 4:
        count *= 2
    return make(max(1, int(count * BLOCK_S / took)))


def compare(work: Work, ways: Ways, rounds: int) -> dict[str, object]:
    """Each way against none at all."""
    times: dict[str, list[float]] = {"off": [], **{name: [] for name in ways}}
    every: Ways = {"off": nullcontext, **ways}
    names = list(every)
    for number in range(rounds):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            with every[name]():
                spin(1.2 / HZ)  # until the first tick, so that a block holds its share of them
                times[name].append(deep(work))
    result: dict[str, object] = {}
    for name in ways:
        found = change(times["off"], times[name])
        result[name] = {
            "change": percent(found),
            "median": round(found.middle, 6),
            "interval_95": [round(found.low, 6), round(found.high, 6)],
        }
    return result


def waiting(hz: float, seconds: float) -> float:
    """Share of a core that the process takes while its main thread waits."""

    def wait() -> None:
        time.sleep(seconds)

    with sampler(hz):
        return deep(wait) / seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=150, help="rounds of each comparison (150)")
    parser.add_argument("--cpu", type=int, help="CPU to run on (the last one allowed)")
    args = parser.parse_args()
    os.sched_setaffinity(0, {args.cpu if args.cpu is not None else max(os.sched_getaffinity(0))})

    ways: Ways = {"sampler": partial(sampler, HZ)}
    with_thread: Ways = ways | {"Python thread, for comparison": partial(python_thread, HZ)}
    results: dict[str, object] = {"busy Python loop": compare(sized(busy), with_thread, args.rounds)}
    if importlib.util.find_spec("torch") is None:
        print("torch is not installed; its part is left out", file=sys.stderr)
    else:
        results["torch training steps"] = compare(sized(torch_steps), ways, args.rounds)
    print(
        json.dumps(
            {
                "unit": "CPU seconds of the process for the same work, change against no sampler",
                "rounds": args.rounds,
                "block_seconds": BLOCK_S,
                "samples_per_second": HZ,
                "frames": FRAMES,
                "paired": results,
                "share_of_a_core_while_waiting": round(waiting(HZ, 20.0), 6),
            },
            indent=2,
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
