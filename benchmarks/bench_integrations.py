"""What one line costs in a two-rank torch job, with and without in turn, on the CPU.

    python -m benchmarks.bench_integrations [--rounds N] [--only KIND]

Prints JSON: per integration, in wall time and in CPU time of rank 0's loop, the median of an
iteration without ARGUS and by how much it takes longer with it, with the interval of
95 % over the rounds.  On a busy machine only the CPU time tells anything.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.paired import change, percent

HERE = Path(__file__).parent / "integrations"
JOBS: dict[str, tuple[str, ...]] = {
    "ddp": (str(HERE / "parallel.py"), "ddp"),
    "fsdp2": (str(HERE / "parallel.py"), "fsdp"),
    "pipeline": (str(HERE / "parallel.py"), "pipeline"),
    **{
        kind: (str(HERE / "frameworks.py"), kind)
        for kind in ("trainer", "accelerate", "lightning", "deepspeed")
    },
    "collectives": (str(HERE / "parallel.py"), "collectives"),
}
"""By integration, a program and its first arguments; the number of rounds follows.  Its rank 0 prints
``{"wall": {"without": [seconds, …], "with": […]}, "cpu": …}``, an item a round."""


def run(command: Sequence[str], rounds: int) -> dict[str, dict[str, list[float]]]:
    """Both ranks of a job; what rank 0 prints."""
    with socket.socket() as probe, tempfile.TemporaryDirectory() as folder:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        environment = {
            **os.environ, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "ARGUS_DIR": folder,
        }  # fmt: skip
        ranks = [
            subprocess.Popen(
                [sys.executable, "-W", "ignore", *command, str(rounds)],
                env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
                text=True,
            )
            for rank in (0, 1)
        ]
        output, _ = ranks[0].communicate()
        for rank in ranks:
            if rank.wait():
                raise SystemExit(f"{' '.join(command)} failed")
    result: dict[str, dict[str, list[float]]] = json.loads(output)
    return result


def summary(taken: dict[str, list[float]]) -> dict[str, Any]:
    change_ = change(taken["without"], taken["with"])
    extra = [b - a for a, b in zip(taken["without"], taken["with"], strict=True)]
    return {
        "iteration_ms": round(1e3 * statistics.median(taken["without"]), 3),
        "extra_ms": round(1e3 * statistics.median(extra), 4),
        "slowdown": {"middle": change_.middle, "low": change_.low, "high": change_.high},
        "text": percent(change_),
        "rounds": change_.rounds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--only", choices=sorted(JOBS))
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    chosen = [options.only] if options.only else sorted(JOBS)
    results = {name: run(JOBS[name], options.rounds) for name in chosen}
    print(
        json.dumps(
            {
                name: {clock: summary(values) for clock, values in taken.items()}
                for name, taken in results.items()
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
