"""Programs whose stacks are looked at, and readers of what is found."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from argus import _native
from argus.exporter.lifecycle import FileSource
from argus.flight.recording import Recording
from argus.flight.select import record
from argus.stacks.table import Stack, StackTable
from native_support import environment, wait_for


def recording_of(base: Path, rank: int = 0) -> Recording:
    """What the segment of a rank holds now, read as the exporter does."""
    source = FileSource(base, removes=False)
    try:
        return record([source], None, {rank}, _native.monotonic_ns())[0]
    finally:
        source.close()


def table_of(base: Path, rank: int = 0) -> StackTable:
    table = recording_of(base, rank).stacks
    assert table is not None
    return table


def training(table: StackTable) -> list[Stack]:
    return [stack for stack in table.stacks if stack.functions[0] == "training thread"]


def samples_in(table: StackTable, function: str) -> int:
    """Samples of the training thread with a function of this name on its stack."""
    return sum(stack.samples for stack in training(table) if function in " ".join(stack.functions))


@contextmanager
def program(code: str, base: Path, **more: str) -> Iterator[subprocess.Popen[str]]:
    """A traced program that says one line when it is ready; it is killed in the end."""
    settings = {"ARGUS_STACKS": "50", "CUDA_VISIBLE_DEVICES": "", "PYTHONUNBUFFERED": "1"} | more
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env=environment(base, **settings),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "ready", process.stderr and process.stderr.read()
        yield process
    finally:
        process.kill()
        process.communicate()


def stuck(base: Path, category: str, function: str, rank: int = 0) -> Stack:
    """The stack that shows where a rank is stuck: once most of its latest samples are there.

    Raises:
        AssertionError: It was not found.
    """

    def look() -> Stack | None:
        for stack in training(table_of(base, rank)):
            if stack.category == category and stack.samples >= 10 and function in " ".join(stack.functions):
                return stack
        return None

    found: Stack = wait_for(look, f"{category} in {function}", 30)
    return found
