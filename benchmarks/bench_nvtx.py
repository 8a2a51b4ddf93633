"""Cost of one NVTX range, next to a range that nobody listens to and to a phase.

    python benchmarks/bench_nvtx.py [--rounds N] [--cpu N]

Pins itself to one CPU and prints JSON: nanoseconds for push and pop, best of N rounds.  The C caller is
NVTX's own header, the Python one the package nvtx, the bare loop taken off; each setting runs in a process of
its own, as NVTX looks for a listener only once.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
COUNT = 2000


def best(body: Callable[[int], None], rounds: int) -> float:
    """Nanoseconds of one pass through ``body(count)``, best of the rounds."""
    result = float("inf")
    for _ in range(rounds):
        begin = time.perf_counter_ns()
        body(COUNT)
        result = min(result, (time.perf_counter_ns() - begin) / COUNT)
    return result


def python_loops() -> dict[str, Callable[[int], None]]:
    import nvtx

    import argus

    phase = argus.phase("optimizer")

    def bare(count: int) -> None:
        for _ in range(count):
            pass

    def annotate(count: int) -> None:
        for _ in range(count):
            nvtx.push_range("forward")
            nvtx.pop_range()

    def kept(count: int) -> None:
        for _ in range(count):
            with phase:
                pass

    return {"bare": bare, "nvtx.push_range, nvtx.pop_range": annotate, "argus.phase, object kept": kept}


def measure(library: str, rounds: int) -> dict[str, float]:
    """In this process: from C without the GIL, and from Python."""
    import argus

    argus.init(run_id="bench", rank=0, world_size=1)
    if not argus.status()["enabled"]:
        raise SystemExit(f"tracing is off: {argus.status()['reason']}")
    caller = ctypes.CDLL(library)
    for function in (caller.pair_ns, caller.unique_ns):
        function.restype = ctypes.c_double
    result = {
        "C: a range that is a phase": caller.pair_ns(b"forward", rounds, COUNT),
        "C: a range without a rule": caller.pair_ns(b"my own range", rounds, COUNT),
        "C: ranges without a rule, each of another name": caller.unique_ns(rounds, COUNT),
    }
    loops = {name: best(body, rounds) for name, body in python_loops().items()}
    result |= {f"Python: {name}": value - loops["bare"] for name, value in loops.items() if name != "bare"}
    argus.finish()
    return {name: round(value, 1) for name, value in result.items()}


def run(library: Path, base: str, rounds: int, injection: str, **more: str) -> dict[str, float]:
    """What ``measure`` tells in a process of its own."""
    env = os.environ | {"ARGUS_DIR": base, "NVTX_INJECTION64_PATH": injection} | more
    command = [sys.executable, __file__, "--measure", str(library), "--rounds", str(rounds)]
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True)
    told: dict[str, float] = json.loads(done.stdout)
    return told


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=300, help="rounds, of which the best counts (300)")
    parser.add_argument("--cpu", type=int, help="CPU to run on (the last one allowed)")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {arguments.cpu if arguments.cpu is not None else max(os.sched_getaffinity(0))})
    if arguments.measure:
        print(json.dumps(measure(arguments.measure, arguments.rounds)))
        return 0

    sys.path.insert(0, str(ROOT / "tests"))
    from argus.nvtx.injection import library as injected
    from nvtx_support import build_caller

    with tempfile.TemporaryDirectory() as base:
        caller = build_caller(Path(base, "libcaller.so"), "-shared", "-fPIC")
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else base
        with tempfile.TemporaryDirectory(dir=memory) as segments:
            result: dict[str, Any] = {
                "unit": "nanoseconds for push and pop",
                "rounds": arguments.rounds,
                "nobody_listens": run(caller, segments, arguments.rounds, ""),
                "argus": run(caller, segments, arguments.rounds, str(injected())),
            }
    print(json.dumps(result, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
