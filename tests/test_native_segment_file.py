"""The native segment as a file: its life, lock and names, and what others do to it."""

from __future__ import annotations

import itertools
import os
import signal
import stat
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from argus._native import Segment, monotonic_ns, own_segments
from native_support import CONSTANTS, LAYOUT, Snapshot, small_disk, wait_for


def test_a_file_appears_complete_and_goes_at_a_clean_end(tmp_path: Path) -> None:
    path = tmp_path / "r.0.00000000.seg"
    before = monotonic_ns()
    segment = Segment(path, run_id="r", rank=0)
    status = path.stat()
    assert list(tmp_path.iterdir()) == [path]
    assert stat.S_IMODE(status.st_mode) == 0o640
    assert status.st_blocks * 512 >= status.st_size
    assert segment.path == str(path)
    assert segment.inode == (status.st_dev, status.st_ino)
    assert own_segments() == [segment]
    with path.open("rb") as file:
        # Reading it in this process would drop the lock with the descriptor: a real
        # writer never does that.
        snapshot = Snapshot(file.read())
    assert before <= snapshot.header["created"] <= monotonic_ns()
    assert snapshot.state["run_state"] == CONSTANTS["STATE_RUNNING"]
    segment.close("ended")
    assert not path.exists()
    assert own_segments() == []


@pytest.mark.parametrize("state", ["failed", None])
def test_a_file_stays_after_any_other_end(tmp_path: Path, state: str | None) -> None:
    path = tmp_path / "r.0.00000000.seg"
    Segment(path, run_id="r", rank=0).close(state)
    expected = CONSTANTS["STATE_FAILED"] if state else CONSTANTS["STATE_RUNNING"]
    assert Snapshot(path.read_bytes()).state["run_state"] == expected


def test_a_clean_end_leaves_a_file_alone_that_took_its_name(tmp_path: Path) -> None:
    path = tmp_path / "r.0.00000000.seg"
    segment = Segment(path, run_id="r", rank=0)
    other = tmp_path / "other"
    other.write_text("mine")
    os.replace(other, path)
    segment.close("ended")
    assert path.read_text() == "mine"


LOCK_PROBE = """
import fcntl, os, struct, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
answer = fcntl.fcntl(fd, fcntl.F_GETLK, struct.pack("hhqqi", fcntl.F_WRLCK, 0, 0, 0, 0))
print(struct.unpack("hhqqi", answer)[0] != fcntl.F_UNLCK)
"""


def is_locked(path: Path) -> bool:
    done = subprocess.run(
        [sys.executable, "-c", LOCK_PROBE, str(path)], capture_output=True, text=True, check=True
    )
    return done.stdout.strip() == "True"


def test_the_lock_lives_as_long_as_the_writer_and_no_child(tmp_path: Path) -> None:
    path = tmp_path / "r.0.00000000.seg"
    segment = Segment(path, run_id="r", rank=0)
    index = segment.phase("p", "compute")
    segment.observe_phase(index, 10)
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            segment.observe_phase(index, 10)
            segment.end_iteration(1, 1, 1)
            segment.close("ended")
            os.write(write_end, str(len(own_segments())).encode())
        finally:
            os._exit(0)
    os.close(write_end)
    assert os.read(read_end, 10) == b"0"
    os.close(read_end)
    os.waitpid(child, 0)
    snapshot = Snapshot(segment.snapshot())
    assert snapshot.occurrences("p") == 1
    assert snapshot.state["iterations"] == 0
    assert path.exists()
    assert is_locked(path)
    segment.close()
    assert not is_locked(path)


def test_an_existing_temporary_file_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "r.0.00000000.seg"
    temporary = tmp_path / "r.0.00000000.seg.tmp"
    temporary.write_text("mine")
    with pytest.raises(FileExistsError):
        Segment(path, run_id="r", rank=0)
    assert temporary.read_text() == "mine"
    target = tmp_path / "target"
    temporary.unlink()
    temporary.symlink_to(target)
    with pytest.raises(FileExistsError):
        Segment(path, run_id="r", rank=0)
    assert not target.exists()


@pytest.mark.parametrize("handler", ["none", "before", "after"])
@pytest.mark.parametrize("garbage", [False, True])
def test_a_truncated_file_does_not_end_the_writer(tmp_path: Path, garbage: bool, handler: str) -> None:
    """Not even with faulthandler, which takes the signal first and raises it again."""
    path = tmp_path / "r.0.00000000.seg"
    code = f"""
import faulthandler, os, sys
from argus._native import Segment
if {handler == "before"}:
    faulthandler.enable()
segment = Segment({str(path)!r}, run_id="r", rank=0)
index = segment.phase("p", "compute")
if {handler == "after"}:
    faulthandler.enable()
os.truncate({str(path)!r}, 0)
if {garbage}:
    os.truncate({str(path)!r}, 300_000)
for n in range(100):
    segment.observe_phase(index, 5)
    segment.end_iteration(n, n + 1, 1)
print(segment.lost, len(segment.snapshot()))
segment.close("ended")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=30
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[0] == str(not garbage)


def test_garbage_in_the_file_does_not_lead_the_writer_astray(tmp_path: Path) -> None:
    path = tmp_path / "r.0.00000000.seg"
    code = f"""
import os
from argus._native import Segment
segment = Segment({str(path)!r}, run_id="r", rank=0)
with open({str(path)!r}, "r+b") as file:
    file.write(b"\\xff" * {len(Segment(None, run_id="run", rank=3).snapshot())})
for n in range(200):
    index = segment.phase(f"p{{n}}", "compute")
    segment.observe_phase(index, 5)
    c = segment.collective("all_reduce", "dp", f"dp-{{n}}")
    if c >= 0:
        segment.observe_collective(c, 5, 5)
    segment.work(f"u{{n}}", "", 1)
    segment.pause("x", 1)
    segment.end_iteration(n, n + 1, 1)
segment.close("ended")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=30
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("handler", [False, True])
def test_other_bus_errors_go_where_they_went(tmp_path: Path, handler: bool) -> None:
    code = f"""
import faulthandler, mmap, os
from argus._native import Segment
if {handler}:
    faulthandler.enable()
segment = Segment({str(tmp_path / "r.0.00000000.seg")!r}, run_id="r", rank=0)
fd = os.open({str(tmp_path / "other")!r}, os.O_RDWR | os.O_CREAT)
os.truncate(fd, 4096)
other = mmap.mmap(fd, 4096)
os.truncate(fd, 0)
other[0] = 1
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=30
    )
    assert done.returncode == -signal.SIGBUS
    assert ("Bus error" in done.stderr) == handler


def test_a_bus_error_that_somebody_sends_ends_the_process(tmp_path: Path) -> None:
    code = f"""
import os, signal
from argus._native import Segment
segment = Segment({str(tmp_path / "r.0.00000000.seg")!r}, run_id="r", rank=0)
os.kill(os.getpid(), signal.SIGBUS)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, timeout=30)
    assert done.returncode == -signal.SIGBUS


def test_no_room_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    with small_disk(tmp_path, 128):
        with pytest.raises(OSError, match="No space left"):
            Segment(tmp_path / "r.0.00000000.seg", run_id="r", rank=0)
        assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fills_up_later_changes_nothing(tmp_path: Path) -> None:
    with small_disk(tmp_path, 2048):
        path = tmp_path / "r.0.00000000.seg"
        segment = Segment(path, run_id="r", rank=0)
        with (tmp_path / "filler").open("wb", 0) as filler, pytest.raises(OSError, match="No space left"):
            filler.writelines(itertools.repeat(bytes(4096)))
        for number in range(500):
            for phase in range(40):  # every record of every table is touched
                segment.observe_phase(segment.phase(f"phase{phase}", "compute"), 1_000_000)
                index = segment.collective("all_reduce", "dp", f"dp-{phase}")
                if index >= 0:
                    segment.observe_collective(index, 1_000)
            segment.end_iteration(number, number + 1, 1_000_000)
        state = Snapshot(segment.snapshot()).state
        assert (state["iterations"], state["phases_used"]) == (500, CONSTANTS["MAX_PHASES"] - 1)
        segment.close("ended")
        assert not path.exists()


HAMMER = """
import sys
from argus._native import Segment
segment = Segment(sys.argv[1], run_id="r", rank=0)
index = segment.phase("p", "compute")
n = 0
while True:
    n += 1
    segment.observe_phase(index, n)
    segment.end_iteration(n, 3 * n, 2 * n, n)
    segment.identify(role=f"role{n}", node=f"node{n}")
"""


def test_sigkill_in_mid_write_leaves_a_readable_segment(tmp_path: Path) -> None:
    path = tmp_path / "r.0.00000000.seg"
    whole = torn = 0
    for _ in range(5):
        writer = subprocess.Popen([sys.executable, "-c", HAMMER, str(path)])
        try:
            wait_for(path.exists, "the segment's file")
            fd = os.open(path, os.O_RDONLY)
            size = os.fstat(fd).st_size
            wait_for(lambda: Snapshot(os.pread(fd, size, 0)).state["iterations"] > 200, "200 iterations")  # noqa: B023
        finally:
            writer.kill()
            writer.wait()
        data = os.pread(fd, size, 0)
        os.close(fd)
        snapshot = Snapshot(data)
        assert snapshot.state["run_state"] == CONSTANTS["STATE_RUNNING"]
        for slot in snapshot.iterations:
            if slot["seq"] % 2:
                torn += 1
                continue
            whole += 1
            n = slot["iteration"]
            assert (slot["end"], slot["wall"], slot["busy"], slot["ordinal"]) == (3 * n, 2 * n, n, n)
        if snapshot.identity["seq"] % 2 == 0:
            assert snapshot.identity["role"][4:] == snapshot.identity["node"][4:]
        assert not is_locked(path)
        path.unlink()
    assert whole >= 5 * 71
    assert torn <= 5


def test_records_are_consistent_while_they_are_written(tmp_path: Path) -> None:
    path = tmp_path / "r.0.00000000.seg"
    writer = subprocess.Popen([sys.executable, "-c", HAMMER, str(path)])
    identity = LAYOUT["structs"]["identity"]
    accepted = rejected = 0
    deadline = time.monotonic() + 20
    try:
        wait_for(path.exists, "the segment's file")
        fd = os.open(path, os.O_RDONLY)
        header = Snapshot(os.pread(fd, os.fstat(fd).st_size, 0)).header
        at = next(s["offset"] for s in header["section"] if s["id"] == CONSTANTS["SECTION_IDENTITY"])
        role, node = identity["fields"]["role"][0], identity["fields"]["node"][0]
        while (accepted < 200 or rejected < 200) and time.monotonic() < deadline:
            before = struct.unpack("Q", os.pread(fd, 8, at))[0]
            data = os.pread(fd, identity["size"], at)
            after = struct.unpack("Q", os.pread(fd, 8, at))[0]
            if before != after or before % 2:
                rejected += 1
                continue
            accepted += 1
            assert data[role + 4 : role + 20].split(b"\0")[0] == data[node + 4 : node + 20].split(b"\0")[0]
        os.close(fd)
    finally:
        writer.kill()
        writer.wait()
    assert accepted >= 200
