"""Small traced programs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from native_support import (
    environment,
)

PROGRAM = """
import argus, json, sys
argus.init(run_id="run one", world_size=8, tensor_parallel=2, pipeline_parallel=2)
for step in range(5):
    with argus.iteration():
        with argus.phase("forward"):
            sum(range(20_000))
        with argus.collective("all_reduce", "dp", bytes=100):
            pass
print(json.dumps(argus.status()))
{end}
"""


WAITS = """
import argus, sys
argus.init(run_id="r")
with argus.iteration(), argus.phase("forward"):
    pass
print(argus.status()["enabled"], flush=True)
sys.stdin.readline()
"""


def start(code: str, base: Path, **more: str) -> subprocess.Popen[str]:
    """Starts a program that says one line when it is ready, and ends when it is told a line."""
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env=environment(base, **more),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ready(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()
