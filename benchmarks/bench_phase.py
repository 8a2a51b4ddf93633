"""Cost of one phase in the training process, next to what else times a block of Python.

    python benchmarks/bench_phase.py [--rounds N] [--cpu N]

Pins itself to one CPU and prints JSON: nanoseconds for one begin and end
(best of N rounds, the bare loop taken off) and the ratio to ARGUS.  What is
not installed is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

Loop = Callable[[int], int]
"""Runs the block that many times and returns nanoseconds."""


def bare(count: int) -> int:
    begin = time.perf_counter_ns()
    for _ in range(count):
        pass
    return time.perf_counter_ns() - begin


def kept(block: AbstractContextManager[Any]) -> Loop:
    """A context manager made once and entered again."""

    def loop(count: int) -> int:
        begin = time.perf_counter_ns()
        for _ in range(count):
            with block:
                pass
        return time.perf_counter_ns() - begin

    return loop


def made(make: Callable[[], AbstractContextManager[Any]]) -> Loop:
    """A context manager made each time; the call of ``make`` is part of the price."""

    def loop(count: int) -> int:
        begin = time.perf_counter_ns()
        for _ in range(count):
            with make():
                pass
        return time.perf_counter_ns() - begin

    return loop


def argus_loops() -> dict[str, Loop]:
    import argus

    def phase(count: int) -> int:
        begin = time.perf_counter_ns()
        for _ in range(count):
            with argus.phase("mlp"):
                pass
        return time.perf_counter_ns() - begin

    def phase_with_kind(count: int) -> int:
        begin = time.perf_counter_ns()
        for _ in range(count):
            with argus.phase("mlp", kind="compute"):
                pass
        return time.perf_counter_ns() - begin

    def collective(count: int) -> int:
        begin = time.perf_counter_ns()
        for _ in range(count):
            with argus.collective("all_reduce", "dp", bytes=4096):
                pass
        return time.perf_counter_ns() - begin

    return {
        "argus.phase": phase,
        "argus.phase, kind given": phase_with_kind,
        "argus.phase, object kept": kept(argus.phase("mlp")),
        "argus.collective": collective,
    }


def prometheus_loops() -> dict[str, Loop]:
    from prometheus_client import CollectorRegistry, Histogram

    histogram = Histogram("phase_seconds", "Phases.", ["phase"], registry=CollectorRegistry())
    child = histogram.labels("mlp")
    return {
        "prometheus_client Histogram.time": made(child.time),
        "prometheus_client Histogram.labels.time": made(lambda: histogram.labels("mlp").time()),
    }


def opentelemetry_loops() -> dict[str, Loop]:
    from opentelemetry.sdk.trace import TracerProvider

    tracer = TracerProvider().get_tracer("bench")
    return {"opentelemetry span": made(lambda: tracer.start_as_current_span("mlp"))}


def torch_loops() -> dict[str, Loop]:
    from torch.profiler import record_function

    return {"torch record_function": made(lambda: record_function("mlp"))}


def measure(loop: Loop, rounds: int, nanoseconds: float = 1e6) -> float:
    """Nanoseconds of one pass, best of the rounds, which are short so that some escape the neighbours."""
    count = max(100, int(nanoseconds / max(loop(1000) / 1000, 1)))
    return min(loop(count) for _ in range(rounds)) / count


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--rounds", type=int, default=300, help="rounds of a millisecond, of which the best counts (300)"
    )
    parser.add_argument("--cpu", type=int, help="CPU to run on (the last one allowed)")
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {arguments.cpu if arguments.cpu is not None else max(os.sched_getaffinity(0))})

    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as base:
        os.environ["ARGUS_DIR"] = base
        import argus

        empty = measure(bare, arguments.rounds)
        off = {
            f"{name}, tracing off": measure(loop, arguments.rounds) for name, loop in argus_loops().items()
        }
        argus.init(run_id="bench", rank=0, world_size=1)
        if not argus.status()["enabled"]:
            print(f"tracing is off: {argus.status()['reason']}", file=sys.stderr)
            return 1
        results, missing = {}, []
        for group in (argus_loops, prometheus_loops, opentelemetry_loops, torch_loops):
            try:
                loops = group()
            except ImportError as error:
                missing.append(error.name)
                continue
            for name, loop in loops.items():
                results[name] = measure(loop, arguments.rounds)
        argus.finish()
        empty = min(empty, measure(bare, arguments.rounds))
        off = {name: value - empty for name, value in off.items()}
        results = {name: value - empty for name, value in results.items()}

    reference = results["argus.phase"]
    print(
        json.dumps(
            {
                "unit": "nanoseconds for begin and end",
                "python": platform.python_version(),
                "machine": platform.machine(),
                "rounds": arguments.rounds,
                "bare_loop": round(empty, 1),
                "nanoseconds": {name: round(value, 1) for name, value in (results | off).items()},
                "times_argus.phase": {name: round(value / reference, 2) for name, value in results.items()},
                "not_installed": missing,
            },
            indent=2,
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
