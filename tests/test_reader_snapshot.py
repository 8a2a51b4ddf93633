"""Consistent copies of a segment that another process is writing without pause."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from argus import _native
from argus.segment import layout, snapshot
from argus.segment.reader import SegmentError, read
from exporter_support import Rank


def _check(content: bytes) -> int:
    """Every iteration was written with wall = forward = the collective's time; how many there are."""
    state = read(content, _native.monotonic_ns())
    slots = state.slots
    np.testing.assert_array_equal(slots["wall"], slots["phase"][:, 0])
    np.testing.assert_array_equal(slots["wall"], slots["collective"]["fastest"][:, 0])
    np.testing.assert_array_equal(np.diff(slots["end"].astype(np.int64)) >= 0, True)
    return len(slots)


@pytest.mark.parametrize(
    ("pause", "least"),
    [("", 0), ("0.0005", 60)],  # far faster than any job: consistent or left out; fast: nearly all there
)
def test_copies_of_a_rank_that_writes_without_pause(tmp_path: Path, pause: str, least: int) -> None:
    with Rank(tmp_path) as rank:
        rank.tell(f"hammer {pause}")
        fd = os.open(rank.path, os.O_RDONLY)
        try:
            seen = set()
            deadline = time.monotonic() + 60
            while len(seen) <= 100:  # it does write meanwhile
                assert time.monotonic() < deadline, len(seen)
                content = snapshot.take(fd)
                assert _check(content) >= least
                seen.add(content)
        finally:
            os.close(fd)


def test_a_rank_killed_in_the_middle_of_a_write(tmp_path: Path) -> None:
    for _ in range(5):
        with Rank(tmp_path) as rank:
            rank.tell("hammer")
            fd = os.open(rank.path, os.O_RDONLY)
            try:
                os.kill(rank.process.pid, signal.SIGKILL)
                rank.process.wait()
                assert _check(snapshot.take(fd)) >= 64
            finally:
                os.close(fd)


def test_a_record_that_stays_open_is_marked_so(tmp_path: Path) -> None:
    with Rank(tmp_path) as rank:
        content = bytearray(rank.path.read_bytes())
    header = np.frombuffer(content, layout.HEADER, 1)[0]
    ring = next(entry for entry in header["section"] if entry["id"] == layout.SECTIONS["ITERATIONS"])
    seq = int(ring["offset"]) + layout.RECORDS["ITERATIONS"].fields["seq"][1]  # type: ignore[index]
    content[seq] |= 1
    path = tmp_path / "damaged.seg"
    path.write_bytes(content)
    fd = os.open(path, os.O_RDONLY)
    try:
        state = read(snapshot.take(fd), _native.monotonic_ns())
    finally:
        os.close(fd)
    assert state.slots["ordinal"].tolist() == [2, 3, 4, 5, 6]


@pytest.mark.parametrize("size", [0, 1, 100, 656, 5000, 200_000])
def test_a_file_that_shrinks_is_an_error_not_a_crash(tmp_path: Path, size: int) -> None:
    with Rank(tmp_path) as rank:
        fd = os.open(rank.path, os.O_RDONLY)
        try:
            snapshot.take(fd)
            path = tmp_path / "copy.seg"
            path.write_bytes(rank.path.read_bytes())
            os.truncate(path, size)
            copy = os.open(path, os.O_RDONLY)
            try:
                with pytest.raises(SegmentError):
                    snapshot.take(copy)
            finally:
                os.close(copy)
        finally:
            os.close(fd)
