"""What the segment of this process says of stalls."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import argus
from argus._native import monotonic_ns, own_segments
from argus.segment.reader import read
from argus.segment.state import RankState


@contextmanager
def tracer(folder: Path, monkeypatch: pytest.MonkeyPatch, **environ: str) -> Iterator[None]:
    """A running tracer, from `argus.init()` to `argus.finish()`."""
    monkeypatch.setenv("ARGUS_DIR", str(folder))
    monkeypatch.delenv("ARGUS_STALLS", raising=False)  # off in the other tests
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    argus.init(run_id="stalls", rank=0, world_size=1)
    try:
        assert argus.status()["enabled"], argus.status()["reason"]
        yield
    finally:
        argus.finish()


def state() -> RankState:
    (segment,) = own_segments()
    return read(segment.snapshot(), monotonic_ns())


def seconds(phase: str) -> list[float]:
    """Exclusive seconds of a phase by iteration; empty: there is no such phase."""
    now = state()
    index = [each.index for each in now.phases if each.name == phase]
    return [] if not index else [float(ns) / 1e9 for ns in now.slots["phase"][:, index[0]]]


def occurrences(phase: str) -> int:
    return sum(int(each.seconds.counts.sum()) for each in state().phases if each.name == phase)


def open_block() -> tuple[str, str] | None:
    """Name and kind of what is open now, as an exporter would see it."""
    block = state().open
    return None if block is None else (block.name, block.kind)


def enabled(source: str) -> bool | None:
    """Whether a source is recording; None where it is not known."""
    return next((each.enabled for each in state().sources if each.name == source), None)
