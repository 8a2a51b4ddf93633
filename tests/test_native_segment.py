"""The native segment: layout table, file life, records."""

from __future__ import annotations

import os
import random
import signal
import stat
import statistics
import struct
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path

import pytest

from argus._native import Segment, layout, monotonic_ns, own_segments
from native_support import CONSTANTS, LAYOUT, Snapshot, wait_for


def memory(**identity: object) -> Segment:
    return Segment(None, **{"run_id": "run", "rank": 3, **identity})  # type: ignore[arg-type]


def sizes(code: str, length: int) -> int:
    if code.startswith("S"):
        return int(code[1:])
    return length * (LAYOUT["structs"][code]["size"] if code in LAYOUT["structs"] else int(code[1:]))


def test_the_layout_table_leaves_no_field_out() -> None:
    reserved = {("identity", 4)}
    for name, table in LAYOUT["structs"].items():
        at = 0
        for offset, code, length in sorted(table["fields"].values()):
            assert offset == at or (name, offset - at) in reserved, (name, offset)
            at = offset + sizes(code, length)
        assert at == table["size"], name


def test_the_layout_is_a_new_object_each_time() -> None:
    layout()["constants"]["MAX_PHASES"] = 0
    assert layout()["constants"]["MAX_PHASES"] == 33


def test_sections_lie_apart_within_the_file() -> None:
    snapshot = Snapshot(memory().snapshot())
    header = snapshot.header
    assert header["magic"] == "ARGUSSEG"
    assert header["total_bytes"] == len(snapshot.data)
    end = header["header_bytes"]
    for section in header["section"][: header["sections"]]:
        assert section["offset"] >= end
        assert section["offset"] % 8 == 0
        end = section["offset"] + section["records"] * section["record_bytes"]
    assert end <= header["total_bytes"]


def test_identity_round_trip() -> None:
    segment = memory(
        role="encoder", node="n1", local_rank=1, world_size=8, attempt=2, dp=1, tp=2, pp=None, cp=-1, ep=5
    )
    identity = Snapshot(segment.snapshot()).identity
    assert identity["run_id"] == "run"
    assert identity["role"] == "encoder"
    assert [identity[name] for name in ("rank", "local_rank", "world_size", "attempt")] == [3, 1, 8, 2]
    assert [identity[name] for name in ("dp", "tp", "pp", "cp", "ep")] == [1, 2, -1, -1, 5]
    segment.identify(pp=4, role="pp4")
    changed = Snapshot(segment.snapshot()).identity
    assert (changed["pp"], changed["role"], changed["dp"], changed["node"]) == (4, "pp4", 1, "n1")
    assert changed["seq"] % 2 == 0
    assert changed["seq"] > identity["seq"]


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("x" * 63, "x" * 63),
        ("x" * 64, "x" * 63),
        ("ä" * 40, "ä" * 31),  # 2 bytes each: 63 bytes hold 31
        ("日" * 30, "日" * 21),
        ("a" + "😀" * 20, "a" + "😀" * 15),
        ("a\nb\0c\x7f", "a_b_c_"),
        ("\ud800x", "?x"),
        ("", ""),
    ],
)
def test_text_is_cut_at_a_character(given: str, stored: str) -> None:
    segment = memory()
    segment.phase(given, "compute")
    assert Snapshot(segment.snapshot()).phase_names == [stored]


def bucket_by_definition(ns: int) -> int:
    """Index with upper bound 2^(-20 + i/8) s, in exact arithmetic of the double that ns / 1e9 is."""
    seconds = Fraction(ns / 1e9)
    for i in range(257):
        # seconds <= 2^(-20 + i/8)  <=>  seconds^8 <= 2^(-160 + i)
        if seconds**8 <= Fraction(2) ** (i - 160):
            return i
    return 257


def test_histogram_boundaries() -> None:
    generator = random.Random(1)
    durations = [0, 1, 953, 954, 10**9, 2 * 10**9, 10**9 + 1, 4096 * 10**9, 4096 * 10**9 + 1, 2**62]
    # Around every boundary, where a rounded bound would go wrong.
    for i in range(0, 257, 3):
        near = round(2 ** (-20 + i / 8) * 1e9)
        durations += [max(0, near - 1), near, near + 1]
    durations += [int(10 ** generator.uniform(0, 13)) for _ in range(500)]
    expected = [0] * 258
    segment = memory()
    index = segment.phase("p", "compute")
    for ns in durations:
        segment.observe_phase(index, ns)
        expected[bucket_by_definition(ns)] += 1
    histogram = Snapshot(segment.snapshot()).phases["p"]["seconds"]
    assert histogram["bucket"] == expected
    assert histogram["sum"] == sum(durations) % 2**64
    assert histogram["seq"] == 2 * len(durations)


def test_iterations_ring_and_sums() -> None:
    segment = memory()
    compute, host = segment.phase("forward", "compute"), segment.phase("data_loading", "host")
    mixed, wait = segment.phase("step", "mixed"), segment.phase("all_reduce", "communication")
    for n in range(100):
        for index, ns in ((compute, 10 + n), (compute, 5), (host, 3), (mixed, 100), (wait, 1000)):
            segment.observe_phase(index, ns)
        segment.end_iteration(500 + n, 10_000 * (n + 1), 2000, 77 if n == 99 else None)
    snapshot = Snapshot(segment.snapshot())
    assert [slot["ordinal"] for slot in snapshot.iterations] == list(range(29, 101))
    last, before = snapshot.iterations[-1], snapshot.iterations[-2]
    assert (last["iteration"], last["end"], last["wall"], last["busy"]) == (599, 1_000_000, 2000, 77)
    assert before["busy"] == 10 + 98 + 5 + 3  # neither mixed nor communication
    assert snapshot.in_iteration(-2) == {"forward": 113, "data_loading": 3, "step": 100, "all_reduce": 1000}
    state = snapshot.state
    assert (state["iterations"], state["last_iteration"], state["last_iteration_end"]) == (
        100,
        599,
        1_000_000,
    )
    assert state["iteration_sum"] == 200_000
    assert state["busy_sum"] == sum(18 + n for n in range(99)) + 77
    assert sum(snapshot.iteration_seconds["bucket"]) == 100


def test_collectives_of_one_communicator_share_their_sequence() -> None:
    segment = memory()
    reduce = segment.collective("reduce_scatter", "dp", "dp-0", members=4, nodes=2)
    gather = segment.collective("all_gather", "dp", "dp-0", members=4, nodes=2)
    other = segment.collective("all_gather", "tp", "tp-0")
    assert segment.collective("all_gather", "dp", "dp-0") == gather
    for index in (reduce, gather, reduce, other):
        segment.observe_collective(index, 1000, 10)
    records = Snapshot(segment.snapshot()).collectives
    assert [(record["enqueued"], record["completed"]) for record in records] == [(3, 3), (2, 2), (1, 1)]
    assert [(record["members"], record["nodes"]) for record in records] == [(4, 2), (4, 2), (-1, -1)]
    assert [record["bytes"] for record in records] == [20, 10, 10]
    segment.sequence(other, 9, 7)
    assert Snapshot(segment.snapshot()).collectives[other]["completed"] == 7


def test_collective_statistics_of_an_iteration() -> None:
    segment = memory()
    index = segment.collective("all_reduce", "world", "world-0")
    durations, sizes_ = [4000, 1000, 9000, 2000], [4000, 500, 90_000, 0]
    for ns, size in zip(durations, sizes_, strict=True):
        segment.observe_collective(index, ns, size)
    segment.end_iteration(0, 1, 1)
    segment.observe_collective(index, 7000)
    segment.end_iteration(1, 2, 1)
    first, second = (slot["collective"][index] for slot in Snapshot(segment.snapshot()).iterations)
    assert first == {
        "fastest": 1000,
        "typical": 3000,
        "occurrences": 4,
        "best_bandwidth": pytest.approx(90_000 / 9e-6),
    }
    assert second == {"fastest": 7000, "typical": 7000, "occurrences": 1, "best_bandwidth": 0.0}


def test_typical_of_many_occurrences_is_close_to_their_median() -> None:
    generator = random.Random(7)
    segment = memory()
    index = segment.collective("send", "pp", "pp-0-1")
    errors = []
    for n in range(60):
        durations = [round(generator.lognormvariate(10, 0.3)) for _ in range(1000)]
        for ns in durations:
            segment.observe_collective(index, ns)
        segment.end_iteration(n, n + 1, 1)
        errors.append(statistics.median(durations))
    slots = Snapshot(segment.snapshot()).iterations
    ratios = [
        slot["collective"][index]["typical"] / median for slot, median in zip(slots, errors, strict=True)
    ]
    # 64 of 1,000: the standard error of the median is 1.2533 * 0.3 / 8 = 4.7 %.
    assert statistics.mean(ratios) == pytest.approx(1, abs=0.02)
    assert max(abs(ratio - 1) for ratio in ratios) < 0.2


def test_full_tables_are_counted_and_nothing_is_overwritten() -> None:
    segment = memory()
    indices = [segment.phase(f"p{i}", "compute") for i in range(40)]
    assert indices == [*range(32), *[32] * 8]
    assert segment.dropped == 8
    collectives = [segment.collective("p0", "g", f"g-{i}") for i in range(34)]
    assert collectives == [*range(32), -1, -1]
    assert segment.dropped == 10
    for i in range(20):
        segment.work(f"unit{i}", "", 1)
    assert segment.dropped == 14
    segment.observe_phase(32, 5)
    snapshot = Snapshot(segment.snapshot())
    assert snapshot.other["name"] == "other"
    assert snapshot.other["kind"] == CONSTANTS["KIND_MIXED"]
    assert sum(snapshot.other["seconds"]["bucket"]) == 1
    assert len(snapshot.work) == 16


def test_open_phase_and_pause() -> None:
    segment = memory()
    index = segment.phase("forward", "compute")
    segment.open_phase(index, 12345)
    segment.pause("evaluation", 99)
    state = Snapshot(segment.snapshot()).state
    assert state["open_phase"] == index << 56 | 12345
    assert (state["pause_kind"], state["pause_begin"]) == ("evaluation", 99)
    segment.open_phase(-1)
    segment.pause(None)
    state = Snapshot(segment.snapshot()).state
    assert (state["open_phase"], state["pause_begin"]) == (2**64 - 1, 0)


def test_wrong_arguments_are_refused() -> None:
    segment = memory()
    index = segment.phase("p", "compute")
    with pytest.raises(ValueError, match="compute, host"):
        segment.phase("q", "gpu")
    with pytest.raises(IndexError):
        segment.observe_phase(index + 1, 1)
    with pytest.raises(IndexError):
        segment.observe_collective(0, 1)
    with pytest.raises(ValueError, match="negative"):
        segment.observe_phase(index, -1)
    with pytest.raises(TypeError):
        segment.observe_phase(index, 1.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        segment.observe_phase(index)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match=">= 0"):
        segment.work("tokens", "", float("nan"))
    with pytest.raises(TypeError, match="rank"):
        Segment(None, run_id="r")  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="out of range"):
        memory(world_size=2**40)
    segment.close()
    with pytest.raises(ValueError, match="closed"):
        segment.snapshot()


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
    file.write(b"\\xff" * {len(memory().snapshot())})
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
    if os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs needs root")
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=128k", "argus-test", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mount.returncode:
        pytest.skip(f"no tmpfs can be mounted: {mount.stderr.strip()}")
    try:
        with pytest.raises(OSError, match="No space left"):
            Segment(tmp_path / "r.0.00000000.seg", run_id="r", rank=0)
        assert list(tmp_path.iterdir()) == []
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


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
