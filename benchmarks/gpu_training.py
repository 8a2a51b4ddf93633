"""What ARGUS costs a real training step on a GPU, and whether its device seconds are right.

    make bench-gpu            or            python -m benchmarks.gpu_training [--rounds N] [--output FILE]

A transformer's step in bf16, eager and compiled, launched kernel by kernel and as a CUDA graph.  For each of
the four, processes with everything on, with everything off and under torch.profiler take turns on the GPU in
blocks of some seconds; their rounds are compared pair by pair, with an interval of 95 %.  An exporter serves
the traced processes and is scraped.  Device seconds per phase are then compared with CUDA's own events, for
every way of attributing kernels to phases: a way that stays within 2 % and loses no iteration is proven on
this GPU, otherwise refuted.

Without a GPU it says so and measures nothing; ``--rehearse`` tries out the script on the CPU, with a tiny
model.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from benchmarks.__main__ import RESULTS, machine
from benchmarks.paired import change, percent, table

WITHIN = 0.02
"""Largest error of a phase's device seconds."""
WAYS = ("memset", "call", "api")
"""Of ARGUS_KERNEL_ATTRIBUTION, each forced; ``auto`` is the mode argus itself."""
CONFIGURATIONS: dict[str, tuple[str, ...]] = {
    "eager": (),
    "compiled": ("--compile",),
    "graph": ("--graph",),
    "compiled graph": ("--compile", "--graph"),
}
NO_GPU = (
    "gpu_training: torch sees no CUDA GPU, so nothing was measured. "
    "Run `make bench-gpu` on a machine with a GPU and a CUDA build of torch."
)
CHECKED = 40
"""Iterations of which phases are compared; a segment remembers 72."""


class Worker:
    """A process of ``gpu_worker``."""

    def __init__(self, mode: str, device: str, size: Any, flags: Sequence[str], **environ: str) -> None:
        command = [
            sys.executable,
            "-m",
            "benchmarks.gpu_worker",
            mode,
            device,
            json.dumps(asdict(size)),
            *flags,
        ]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | environ
        )
        self.phases: list[str] = self._answer()["phases"]

    def ask(self, do: str, count: int) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, "count": count}) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"gpu_training: {self._process.args!r} ended; its last words are above")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=120)


@contextmanager
def scraped_exporter(folder: str) -> Iterator[None]:
    """An exporter over the segments, scraped every second (production: every 15)."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    command = [sys.executable, "-m", "argus.cli", "exporter", "--web.listen-address", address]
    exporter = subprocess.Popen([*command, "--segments.directory", folder, "--log.level", "error"])
    done = threading.Event()

    def scrape() -> None:
        while not done.wait(1):
            try:
                urllib.request.urlopen(f"http://{address}/metrics", timeout=10).read()
            except OSError:
                continue  # not up yet

    thread = threading.Thread(target=scrape)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        exporter.terminate()
        exporter.wait(timeout=30)


def overhead(workers: dict[str, Worker], rounds: int, seconds: float) -> dict[str, Any]:
    """Blocks of steps in turn, the order another one in each round."""
    once = workers["off"].ask("steps", 3)["seconds"] / 3
    count = max(2, round(seconds / once))
    times: dict[str, list[float]] = {name: [] for name in workers}
    names = list(workers)
    for number in range(rounds):
        turn = number % len(names)
        for name in (*names[turn:], *names[:turn]):
            times[name].append(workers[name].ask("steps", count)["seconds"] / count)
    slower = {name: change(times["off"], times[name]) for name in names if name != "off"}
    return {
        "steps_per_block": count,
        "seconds_per_step": {name: min(values) for name, values in times.items()},
        "slower": {name: value._asdict() for name, value in slower.items()},
        "in_words": {name: percent(value) for name, value in slower.items()},
    }


def accuracy(worker: Worker) -> dict[str, Any]:
    """Device seconds by phase against CUDA's events."""
    found = worker.ask("check", CHECKED)
    events, argus = found["events"], found["argus"]
    errors = None if argus is None else {name: argus.get(name, 0.0) / events[name] - 1 for name in events}
    right = errors is not None and all(abs(error) <= WITHIN for error in errors.values())
    return {**found, "relative_error": errors, "within_2_percent": right}


def verdict(way: str, found: dict[str, Any]) -> str:
    """What was shown about a way of attributing kernels to phases."""
    if way not in ("auto", found.get("attribution")):
        return f"not available here ({found.get('attribution')} instead)"
    if found["argus"] is None:
        return "refuted: iterations are missing"
    return "proven" if found["within_2_percent"] else "refuted: device seconds differ by more than 2 %"


def configuration(name: str, device: str, size: Any, rounds: int, seconds: float) -> dict[str, Any]:
    """Everything about one of the configurations; three processes at a time are on the GPU."""

    def start(mode: str, **environ: str) -> closing[Worker]:
        return closing(Worker(mode, device, size, CONFIGURATIONS[name], **environ))

    with start("off") as off:
        with start("argus") as argus, start("profiler") as profiler:
            workers = {"off": off, "argus": argus, "profiler": profiler}
            result = overhead(workers, rounds, seconds)
            accurate = {"auto": accuracy(argus)}
        # Forced ways are told apart only where a step has several phases.
        several = len(off.phases) > 1 and device == "cuda"
        for way in WAYS if several else ():
            with start("argus", ARGUS_KERNEL_ATTRIBUTION=way) as worker:
                cost = overhead({"off": off, f"argus, {way}": worker}, rounds, seconds)
                accurate[way] = accuracy(worker)
            for part in ("seconds_per_step", "slower", "in_words"):
                result[part] |= {mode: value for mode, value in cost[part].items() if mode != "off"}
    result["accuracy"] = accurate
    result["attribution"] = {way: verdict(way, found) for way, found in accurate.items()}
    return result


def show(results: dict[str, Any]) -> str:
    """The results as tables."""
    costs = [
        {
            "configuration": name,
            "against off": mode,
            "s a step": result["seconds_per_step"][mode],
            "slower (95 %)": words,
        }
        for name, result in results.items()
        for mode, words in result["in_words"].items()
    ]
    phases = [
        {
            "configuration": name,
            "attribution": way,
            "phase": phase,
            "CUDA events, s": seconds,
            "ARGUS, s": (found["argus"] or {}).get(phase, "missing"),
            "verdict": result["attribution"][way],
        }
        for name, result in results.items()
        for way, found in result["accuracy"].items()
        for phase, seconds in found["events"].items()
    ]
    return f"{table(costs)}\n\n{table(phases)}"


def gpu() -> dict[str, object] | None:
    """The GPU and what drives it; None without one."""
    import torch

    if not torch.cuda.is_available():
        return None
    return {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "memory_bytes": torch.cuda.get_device_properties(0).total_memory,
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=20, help="pairs of blocks (20)")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a block (2)")
    parser.add_argument("--only", choices=list(CONFIGURATIONS), help="one of the configurations")
    parser.add_argument("--layers", type=int, help="of the model; fewer where memory is short (8)")
    parser.add_argument("--batch", type=int, help="sequences of 2,048 tokens; likewise (8)")
    parser.add_argument("--output", type=Path, help=f"where the results go ({RESULTS}/gpu_training.json)")
    parser.add_argument(
        "--rehearse", action="store_true", help="on the CPU: figures mean nothing, nothing is kept"
    )
    args = parser.parse_args()
    if args.rounds < 3:
        parser.error("--rounds must be at least 3, for an interval")
    try:
        from benchmarks.gpu_model import Size

        found = gpu()
    except ImportError as error:
        print(f"gpu_training: {error.name} is not installed, so nothing was measured", file=sys.stderr)
        return 2
    if found is None and not args.rehearse:
        print(NO_GPU, file=sys.stderr)
        return 2
    device, size, names = "cuda", Size(), list(CONFIGURATIONS)
    if args.rehearse:
        device, names = "cpu", ["eager"]
        size = Size(layers=2, hidden=64, heads=4, sequence=64, batch=2, vocabulary=256)
    size = replace(size, layers=args.layers or size.layers, batch=args.batch or size.batch)
    names = [args.only] if args.only else names
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        os.environ["ARGUS_DIR"] = folder
        with scraped_exporter(folder):
            results = {}
            for name in names:
                print(f"== {name}", file=sys.stderr, flush=True)
                results[name] = configuration(name, device, size, args.rounds, args.seconds)
    print(show(results))
    if args.rehearse:
        print("A rehearsal on the CPU: these figures say nothing about a GPU.", file=sys.stderr)
        return 0
    output = args.output or RESULTS / "gpu_training.json"
    output.parent.mkdir(parents=True, exist_ok=True)
    record = {
        "benchmark": "gpu_training",
        "command": "make bench-gpu",
        "date": datetime.fromtimestamp(time.time(), timezone.utc).strftime("%Y-%m-%d"),
        "machine": machine() | (found or {}),
        "size": asdict(size),
        "result": results,
    }
    output.write_text(json.dumps(record, indent=2) + "\n")
    print(f"wrote {output}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
