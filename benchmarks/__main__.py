"""Run the benchmarks and keep their results, with the machine and the command, in ``benchmarks/results/``."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

HERE = Path(__file__).parent
RESULTS = HERE / "results"


def names() -> list[str]:
    """Names of the benchmarks: the modules ``bench_<name>.py``, each printing one JSON object."""
    return sorted(path.stem.removeprefix("bench_") for path in HERE.glob("bench_*.py"))


def machine() -> dict[str, object]:
    """What the figures depend on."""
    model = next(
        (line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.processor() or "unknown",
    )
    memory_kib = next(
        (int(line.split()[1]) for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), 0
    )
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "memory_bytes": memory_kib * 1024,
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def run(name: str, out: Path) -> bool:
    """Run one benchmark in a process of its own; False if it failed."""
    command = [sys.executable, "-m", f"benchmarks.bench_{name}"]
    print(f"== {name}", file=sys.stderr, flush=True)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, cwd=HERE.parent)
    if done.returncode:
        print(f"benchmark {name} failed with status {done.returncode}", file=sys.stderr)
        return False
    result = json.loads(done.stdout)
    record = {
        "benchmark": name,
        "command": f"make bench ARGS={name}",
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        "machine": machine(),
        "result": result,
    }
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.json").write_text(json.dumps(record, indent=2) + "\n")
    json.dump(result, sys.stdout, indent=2)
    print(flush=True)
    return True


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"which ones (default: all of {', '.join(names())})"
    )
    parser.add_argument(
        "--output", type=Path, default=RESULTS, help="folder of the results (default: %(default)s)"
    )
    args = parser.parse_args()
    unknown = set(args.names) - set(names())
    if unknown:
        parser.error(f"no benchmark named {', '.join(sorted(unknown))}; there are: {', '.join(names())}")
    assert importlib.util.find_spec("argus"), "install the package first: make setup"
    succeeded = [run(name, args.output) for name in args.names or names()]
    return 0 if all(succeeded) else 1


if __name__ == "__main__":
    sys.exit(main())
