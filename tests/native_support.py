"""Reads segments for the tests of their writers: plain struct, no code of the exporter's reader."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from argus import _native

LAYOUT = _native.layout()
CONSTANTS = LAYOUT["constants"]
_CODES = {"u8": "Q", "i8": "q", "u4": "I", "i4": "i", "f8": "d"}


def decode(data: bytes, name: str, offset: int = 0) -> dict[str, Any]:
    """One structure as a dict, nested ones too; text without its zero bytes."""
    result: dict[str, Any] = {}
    for field, (at, code, length) in LAYOUT["structs"][name]["fields"].items():
        begin = offset + at
        if code.startswith("S"):
            result[field] = data[begin : begin + int(code[1:])].rstrip(b"\0").decode()
        elif code in _CODES:
            values = struct.unpack_from(f"={length}{_CODES[code]}", data, begin)
            result[field] = values[0] if length == 1 else list(values)
        else:
            size = LAYOUT["structs"][code]["size"]
            nested = [decode(data, code, begin + i * size) for i in range(length)]
            result[field] = nested[0] if length == 1 else nested
    return result


class Snapshot:
    """A segment's contents."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.header = decode(data, "header")
        self.identity = self._records("IDENTITY", "identity")[0]
        self.state = self._records("STATE", "state")[0]
        self.iteration_seconds = self._records("ITERATION_HISTOGRAM", "histogram")[0]
        phases = self._records("PHASES", "phase")
        self.other = phases[CONSTANTS["OTHER_PHASE"]]
        self.phases = {phase["name"]: phase for phase in phases[: self.state["phases_used"]]}
        self.phase_names = list(self.phases)
        self.collectives = self._records("COLLECTIVES", "collective")[: self.state["collectives_used"]]
        slots = self._records("ITERATIONS", "iteration")
        self.iterations = sorted(
            (slot for slot in slots if slot["ordinal"]), key=lambda slot: int(slot["ordinal"])
        )
        self.work = {
            (record["unit"], record["phase"]): record["total"]
            for record in self._records("WORK", "work")[: self.state["work_used"]]
        }
        sources = self._records("SOURCES", "source")[: self.state["sources_used"]]
        self.sources = {source["name"]: source for source in sources}

    def _records(self, section: str, name: str) -> list[dict[str, Any]]:
        number = CONSTANTS[f"SECTION_{section}"]
        entry = next(entry for entry in self.header["section"] if entry["id"] == number)
        return [
            decode(self.data, name, entry["offset"] + i * entry["record_bytes"])
            for i in range(entry["records"])
        ]

    def occurrences(self, phase: str) -> int:
        """How often a phase was counted."""
        return sum(self.phases[phase]["seconds"]["bucket"])

    def total(self, phase: str) -> int:
        """Nanoseconds of all its occurrences."""
        return int(self.phases[phase]["seconds"]["sum"])

    def in_iteration(self, index: int) -> dict[str, int]:
        """Nanoseconds by phase in one of the iterations."""
        values = self.iterations[index]["phase"]
        return {name: values[i] for i, name in enumerate(self.phase_names) if values[i]}


class Clock:
    """The tracer's clock, moved by hand."""

    def __init__(self) -> None:
        self.now = 1_000_000_000
        _native.set_clock(self.now)

    def advance(self, ns: int) -> None:
        self.now += ns
        _native.set_clock(self.now)


class Traced:
    """A tracer on a segment in memory, with the clock held."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.reports: list[str] = []
        self.segment = _native.Segment(None, run_id="test", rank=0)
        _native.configure(report=self.reports.append)
        _native.start(self.segment)

    def snapshot(self) -> Snapshot:
        return Snapshot(self.segment.snapshot())


@contextmanager
def traced() -> Iterator[Traced]:
    """Traces this process for a while."""
    tracer = Traced()
    try:
        yield tracer
    finally:
        _native.stop()
        _native.set_clock(0)


@contextmanager
def small_disk(path: Path, kib: int) -> Iterator[None]:
    """A file system of this size at ``path``; the test is skipped where none can be mounted."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs needs root")
    command = ["mount", "-t", "tmpfs", "-o", f"size={kib}k", "argus-test", str(path)]
    mount = subprocess.run(command, capture_output=True, text=True, check=False)
    if mount.returncode:
        pytest.skip(f"no tmpfs can be mounted: {mount.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", str(path)], check=True)


def in_thread(work: Callable[[], None]) -> None:
    """Have it done by another thread, and wait."""
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def wait_for(condition: Callable[[], Any], what: str, seconds: float = 20.0) -> Any:
    """The condition's value once it is true.

    Raises:
        AssertionError: It was not within the time.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.002)
    raise AssertionError(f"waited {seconds} s in vain: {what}")


def environment(base: Path, **more: str) -> dict[str, str]:
    """A clean environment for a traced child process, whatever launched the tests."""
    prefixes = (
        "ARGUS",
        "SLURM",
        "OMPI",
        "PMI",
        "TORCHELASTIC",
        "KUBERNETES",
        "MASTER",
        "LOCAL_",
        "RANK",
        "WORLD_",
    )
    kept = {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}
    # A collection of garbage would be one phase more.
    return kept | {"ARGUS_DIR": str(base), "ARGUS_STALLS": "0"} | more


def run_python(code: str, base: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Runs a traced program to its end."""
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=environment(base, **more),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def segment_files(base: Path) -> list[Path]:
    """The segments below a base directory."""
    return sorted(base.glob("argus-*/*.seg"))
