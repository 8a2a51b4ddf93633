"""Time and memory of ``argus diagnose`` on recorded traces of growing size, made from a seed."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SIZES = {"64 ranks x 44 iterations": (64, 44), "1,000 ranks x 30 iterations": (1000, 30)}
SLOW_FACTOR = 1.6


def measure(path: str) -> dict[str, object]:
    """Judge one trace in this process."""
    from argus.diagnose.judge import judge
    from argus.prometheus import find_prometheus
    from argus.traces import load

    began = time.perf_counter()
    table, notes = load([path])
    read = time.perf_counter()
    with table:
        rows = table.rows
        verdict = judge(table, notes, find_prometheus(), None, lambda message: None)
    end = time.perf_counter()
    return {
        "rows": rows,
        "seconds": round(end - began, 1),
        "seconds_reading": round(read - began, 1),
        "accused_ranks": sorted({int(a.labels["rank"]) for a in verdict.alerts if "rank" in a.labels}),
        "slowdown": verdict.slowdown and round(verdict.slowdown, 3),
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "prometheus_peak_rss_bytes": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024,
    }


def main() -> None:
    if len(sys.argv) > 1:
        print(json.dumps(measure(sys.argv[1])))
        return
    from benchmarks.recorded import write_parquet

    results: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, (ranks, iterations) in SIZES.items():
            path = Path(folder) / "trace.parquet"
            write_parquet(path, ranks, iterations, {ranks // 3: SLOW_FACTOR})
            # A process of its own: peak memory is a process's.
            command = [sys.executable, "-m", "benchmarks.bench_diagnose", str(path)]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            results[name] = {"slow_rank": ranks // 3, **json.loads(done.stdout)}
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
