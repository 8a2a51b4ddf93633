"""What it costs to see stalls: the same work with the hooks on and off, in turn.

    python -m benchmarks.bench_stalls [--rounds N] [--cpu N]

Pins itself to one CPU and prints JSON: milliseconds of the work, by how much it
takes longer (median of the rounds with an interval of 95 %), and nanoseconds for
one event (best of the rounds with the hooks, less best without).

- ``gc``: a loop that only makes objects, so that Python collects garbage all the
  time; most collections take less than 0.1 ms and leave no phase.
- ``gc, told``: what Python calls before and after each of 1000 collections, without collecting.
- ``gc, long``: full collections of a heap of 100,000 lists; each becomes a phase.
- ``torch.save``: of a tensor of 4 bytes into memory, 20 times; a pause each.
- ``argus.data``: batches that cost nothing, 1000 of them; a phase each.
"""

from __future__ import annotations

import argparse
import gc
import io
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from benchmarks.paired import change, percent


class Case(NamedTuple):
    """Work that meets a number of events.

    Attributes:
        events: How many one call meets.
        off: The work without them being seen.
        on: The same, seen.
        bare: Without the hooks there is next to nothing to do, and a share of it would mean nothing.
    """

    events: int
    off: Callable[[], object]
    on: Callable[[], object]
    bare: bool = False


def make_garbage() -> None:
    for number in range(20_000):
        _ = [number]
        _.append(_)


def seen(work: Callable[[], object]) -> Callable[[], object]:
    """The work with collections seen, as between ``argus.init()`` and ``argus.finish()``."""
    from argus import _native

    def run() -> None:
        gc.callbacks.append(_native.on_collection)
        try:
            work()
        finally:
            gc.callbacks.remove(_native.on_collection)

    return run


def collections(work: Callable[[], object]) -> int:
    """How many collections the work meets."""
    before = sum(generation["collections"] for generation in gc.get_stats())
    work()
    return sum(generation["collections"] for generation in gc.get_stats()) - before


def tell() -> None:
    from argus import _native

    for _ in range(1000):
        _native.on_collection("start", None)
        _native.on_collection("stop", None)


def saves(torch: Any, hooked: Callable[..., Any]) -> Case:
    tensor = torch.ones(1)

    def run(save: Callable[..., Any]) -> None:
        for _ in range(20):
            save(tensor, io.BytesIO())

    return Case(20, lambda: run(hooked.__wrapped__), lambda: run(hooked))  # type: ignore[attr-defined]


def loops() -> Case:
    import argus

    def run(batches: Any) -> None:
        for _ in batches:
            pass

    return Case(1000, lambda: run(iter(range(1000))), lambda: run(argus.data(range(1000))), bare=True)


def measure(case: Case, rounds: int) -> dict[str, Any]:
    times: dict[str, list[float]] = {"off": [], "on": []}
    for number in range(rounds):
        for name in ("off", "on") if number % 2 else ("on", "off"):
            work = case.on if name == "on" else case.off
            begin = time.perf_counter_ns()
            work()
            times[name].append((time.perf_counter_ns() - begin) / 1e9)
    result: dict[str, Any] = {"milliseconds": round(min(times["off"]) * 1e3, 4), "events": case.events}
    if not case.bare:
        result["change"] = percent(change(times["off"], times["on"]))
    if case.events > 1:  # one is lost in the noise of the rest
        more = min(times["on"]) - min(times["off"])
        result["nanoseconds_per_event"] = round(more * 1e9 / case.events)
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=200, help="rounds, on and off in each (200)")
    parser.add_argument("--cpu", type=int, help="CPU to run on (the last one allowed)")
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {arguments.cpu if arguments.cpu is not None else max(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as base:
        os.environ["ARGUS_DIR"] = base
        import argus
        from argus import _native

        argus.init(run_id="bench", rank=0, world_size=1)
        if not argus.status()["enabled"]:
            print(f"tracing is off: {argus.status()['reason']}", file=sys.stderr)
            return 1
        gc.callbacks.remove(_native.on_collection)
        heap = [[number] for number in range(100_000)]
        cases = {
            "gc, told": Case(1000, lambda: None, tell, bare=True),
            "gc, long": Case(1, gc.collect, seen(gc.collect)),
            "gc": Case(collections(make_garbage), make_garbage, seen(make_garbage)),
            "argus.data": loops(),
        }
        try:
            import torch

            cases["torch.save"] = saves(torch, torch.save)
        except ImportError:
            print("torch is not installed: torch.save is left out", file=sys.stderr)
        results = {name: measure(case, arguments.rounds) for name, case in cases.items()}
        del heap
        argus.finish()
    print(
        json.dumps(
            {"python": platform.python_version(), "rounds": arguments.rounds, "cases": results}, indent=2
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
