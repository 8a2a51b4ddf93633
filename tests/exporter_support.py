"""Real ranks and small helpers for the tests of reader and exporter."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from argus import _native
from argus.exporter.exposition.families import Family
from argus.exporter.exposition.messages import MetricFamily

RANK = r"""
import os, sys, time
from argus import _native
options = eval(sys.argv[2])
uid = options.pop("uid", None)
if uid:
    os.setgid(uid)
    os.setuid(uid)
segment = _native.Segment(sys.argv[1], **options)
forward = segment.phase("forward", "compute")
sync = segment.collective("all_reduce", "dp", "dp-0", members=2, nodes=1)
number = 0

def step(wall):
    global number
    segment.observe_phase(forward, wall)
    segment.observe_collective(sync, wall, 1000)
    segment.end_iteration(number, _native.monotonic_ns(), wall)
    number += 1

for _ in range(6):
    step(100_000_000)
print("ready", flush=True)
for line in sys.stdin:
    command = line.strip()
    if command.startswith("hammer"):
        pause = float(command[6:] or 0)
        for _ in range(200):
            step(1_000_000 + number % 977)
        print("ok", flush=True)
        while True:
            step(1_000_000 + number % 977)
            if pause:
                time.sleep(pause)
    elif command == "step":
        step(100_000_000)
    elif command.startswith("role "):
        segment.identify(role=command[5:])
    elif command in ("ended", "failed"):
        segment.close(command)
    print("ok", flush=True)
"""


class Rank:
    """A process that writes a segment; it holds the lock like any rank."""

    def __init__(self, base: Path, run_id: str = "run", rank: int = 0, **options: Any) -> None:
        uid = options.get("uid") or os.getuid()
        directory = base / f"argus-{uid}"
        if not directory.exists():
            directory.mkdir(mode=0o750)
            os.chown(directory, uid, uid if uid else -1)
        self.path = directory / f"{run_id}.{rank}.{time.monotonic_ns() & 0xFFFFFFFF:08x}.seg"
        self.process = subprocess.Popen(
            [sys.executable, "-c", RANK, str(self.path), repr({"run_id": run_id, "rank": rank, **options})],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer("ready")

    def tell(self, command: str) -> None:
        """Let the rank do something, and wait until it is done."""
        assert self.process.stdin is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        self._answer("ok")

    def kill(self) -> None:
        """SIGKILL, as the kernel's out-of-memory killer does."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()

    def __enter__(self) -> Rank:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _answer(self, expected: str) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline().strip() == expected


def until(condition: Callable[[], bool], timeout: float = 20.0, pause: float = 0.02) -> None:
    """Wait for a condition, which is looked at every ``pause`` seconds."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "condition not reached"
        time.sleep(pause)


def segment(rank: int = 0, **identity: Any) -> _native.Segment:
    """A segment in memory."""
    return _native.Segment(None, **{"run_id": "run", "rank": rank, **identity})


def messages(encoded: bytes) -> Iterator[Any]:
    """The families of a page in protobuf."""
    position = 0
    while position < len(encoded):
        length = shift = 0
        while True:
            byte = encoded[position]
            position += 1
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        yield MetricFamily.FromString(encoded[position : position + length])
        position += length


def series(families: list[Family]) -> dict[tuple[str, tuple[str, ...]], Any]:
    """Values by metric name and label values."""
    return {(family.metric.name, labels): value for family in families for labels, value in family.series}
