"""Time to classify a kernel's name, which the tracer does once per distinct name.

    python benchmarks/bench_classify.py [--rounds N]

Prints JSON: microseconds by name (best of N rounds each, Python's call included) over the tested names,
without and with the largest file of the user's own patterns.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

from argus import _native

NAMES = Path(__file__).parent.parent / "tests" / "data" / "kernel_names.txt"


def measure(names: list[str], patterns: object, rounds: int) -> dict[str, float]:
    """Microseconds for one name: median, and of the slowest."""
    best = [float("inf")] * len(names)
    for _ in range(rounds):
        for index, name in enumerate(names):
            begin = time.perf_counter_ns()
            _native.kernel_class(name, patterns)
            best[index] = min(best[index], (time.perf_counter_ns() - begin) / 1000)
    return {"median": round(statistics.median(best), 2), "slowest": round(max(best), 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=20)
    args = parser.parse_args()
    lines = NAMES.read_text("utf-8").splitlines()
    names = [line.split(" ", 1)[1] for line in lines if line and not line.startswith("#")]
    with tempfile.NamedTemporaryFile("w", suffix=".patterns") as file:
        file.write("".join(f"other no_such_{number}*kernel\n" for number in range(256)))
        file.flush()
        patterns, complaint = _native.read_kernel_patterns(file.name)
    assert not complaint, complaint
    result = {
        "unit": "us",
        "names": len(names),
        "built_in_rules": measure(names, None, args.rounds),
        "with_256_patterns": measure(names, patterns, args.rounds),
        "one_of_1_mb": measure(["x" * 1_000_000], None, args.rounds),
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
