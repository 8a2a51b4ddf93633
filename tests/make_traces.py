"""Write the small traces of ``tests/data``: ``python tests/make_traces.py [FOLDER]``, the same every time.

- ``healthy``: 8 ranks, 10 iterations, 1 % of noise.
- ``two-stragglers``: the same, ranks 2 and 5 are 1.8 times as slow in forward and backward.
- ``rotating``: 32 ranks, 24 iterations; in each another replica of 4 ranks computes twice as long.
"""

from __future__ import annotations

import gzip
import random
import sys
from pathlib import Path

FOLDER = Path(__file__).parent / "data"

PHASES = (
    ("data_loading", "host", 0.02),
    ("forward", "compute", 0.6),
    ("backward", "compute", 1.2),
    ("grad_sync", "communication", 0.1),
    ("optimizer", "compute", 0.15),
)


def trace(ranks: int, iterations: int, factor: dict[tuple[int, int], float], seed: int) -> str:
    """CSV text; ``factor`` multiplies forward and backward of (rank, iteration)."""
    noise = random.Random(seed)
    lines = ["rank,iteration,phase,kind,start,duration,op,group,group_id,members"]
    begin = 0.0
    for iteration in range(iterations):
        seconds = {
            (rank, name): typical
            * noise.gauss(1.0, 0.01)
            * (factor.get((rank, iteration), 1.0) if name in ("forward", "backward") else 1.0)
            for rank in range(ranks)
            for name, _, typical in PHASES
        }
        arrival = {r: sum(seconds[r, name] for name, _, _ in PHASES[:3]) for r in range(ranks)}
        last = max(arrival.values())
        ends = []
        for rank in range(ranks):
            seconds[rank, "grad_sync"] += last - arrival[rank]  # all wait for the last
            at = begin
            for name, kind, _ in PHASES:
                took = seconds[rank, name]
                collective = f"all_reduce,dp,dp-0,{ranks}" if name == "grad_sync" else ",,,"
                lines.append(f"{rank},{iteration},{name},{kind},{at:.6f},{took:.6f},{collective}")
                at += took
            ends.append(at)
        begin = max(ends)
    return "\n".join(lines) + "\n"


def traces() -> dict[str, str]:
    """File name to CSV text."""
    slow = {(rank, iteration): 1.8 for rank in (2, 5) for iteration in range(10)}
    turns = random.Random(32)
    order: list[int] = []
    while len(order) < 24:
        replica = turns.randrange(8)
        if replica not in order[-2:]:
            order.append(replica)
    rotating = {
        (4 * replica + part, iteration): 2.0 for iteration, replica in enumerate(order) for part in range(4)
    }
    return {
        "healthy.csv.gz": trace(8, 10, {}, 1),
        "two-stragglers.csv.gz": trace(8, 10, slow, 2),
        "rotating.csv.gz": trace(32, 24, rotating, 3),
    }


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in traces().items():
        (folder / name).write_bytes(gzip.compress(text.encode(), 9, mtime=0))


if __name__ == "__main__":
    main()
