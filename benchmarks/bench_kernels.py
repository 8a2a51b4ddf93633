"""What one kernel record costs the kernel tracer, and its memory over many records, without a GPU.

The tracer runs in the tests' driver with the stand-in for CUPTI (``tests/standin/``): records come in buffers
of 128 KiB through the callbacks, names of 300 characters in random order, six phases in iterations of 6,000
kernels.  A record's cost is the CPU time of the library's own thread and of its marks, best of all rounds,
on one pinned core; the stand-in's ``cuptiActivityGetNextRecord`` is part of it, as CUPTI's would be.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from kernels_support import build

NAMES = (50, 400, 2000)
ROUNDS = 24
RECORDS = 100_000_000


def driver(*arguments: object, pinned: bool = True, **environ: str) -> dict[str, float]:
    """One scenario's result."""
    folder = build()
    variables = os.environ | {"STANDIN_CUDA": str(folder / "libcuda.so.1")} | environ
    core = max(os.sched_getaffinity(0))
    done = subprocess.run(
        [str(folder / "driver"), *map(str, arguments)],
        env=variables, stdout=subprocess.PIPE, check=True,
        preexec_fn=(lambda: os.sched_setaffinity(0, {core})) if pinned else None,
    )  # fmt: skip
    result: dict[str, float] = json.loads(done.stdout)
    return result


def main() -> None:
    records = int(sys.argv[1]) if len(sys.argv) > 1 else RECORDS
    cost = {str(names): driver("bench", names, ROUNDS)["ns_per_record"] for names in NAMES}
    soak = driver("soak", records, pinned=False)
    json.dump(
        {
            "ns_per_record_by_distinct_names": cost,
            "phase_begin_and_end_ns": driver("edges", 1000, ARGUS_KERNEL_ATTRIBUTION="none"),
            "memory": soak,
        },
        sys.stdout,
    )


if __name__ == "__main__":
    main()
