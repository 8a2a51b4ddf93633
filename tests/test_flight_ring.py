"""The rings of last events: what is written, what a reader gets while it is being written, damage."""

from __future__ import annotations

import os
import random
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import argus
from argus import _native
from argus.flight import ring
from argus.flight.perfetto.write import encode
from argus.flight.recording import record_file, record_memory, trace
from argus.segment import layout
from argus.segment.reader import read
from argus.segment.sections import SegmentError
from native_support import Clock, environment, segment_files, wait_for

EVENT = 32


class Flight:
    """A traced process of one rank, with the clock held, that keeps so many events."""

    def __init__(self, events: int) -> None:
        self.clock = Clock()
        self.segment = _native.Segment(None, run_id="run", rank=0, flight_events=events)
        _native.start(self.segment)

    def ring(self) -> ring.Ring:
        (found,) = rings(self.segment.snapshot(), self.clock.now)
        return found


@pytest.fixture
def flight() -> Iterator[Flight]:
    made = Flight(64)
    yield made
    _native.stop()
    _native.set_clock(0)


def rings(content: bytes, now_ns: int = 1 << 60) -> list[ring.Ring]:
    return ring.take(lambda offset, length: content[offset : offset + length], len(content), now_ns)


def place(content: bytes, section: str) -> tuple[int, int]:
    """Offset and number of records, from the header by hand."""
    constants, structs = _native.layout()["constants"], _native.layout()["structs"]
    at = structs["header"]["fields"]["section"][0]
    for i in range(constants["MAX_SECTIONS"]):
        number, _, records, _, offset = struct.unpack_from("=IIIIQ", content, at + 24 * i)
        if number == constants[f"SECTION_{section}"]:
            return offset, records
    raise AssertionError(section)


def test_every_kind_of_event_by_hand(flight: Flight) -> None:
    clock = flight.clock
    start = clock.now
    with argus.iteration(7):
        with argus.phase("flight_forward"):
            clock.advance(10)
            with argus.phase("flight_inner"):
                clock.advance(200)
        with argus.collective("all_reduce", "dp", "dp-0", bytes=4096):
            clock.advance(3000)
    with argus.pause("evaluation"):
        clock.advance(40_000)
    found = flight.ring()
    rows = zip(
        found.type, found.begin - start, found.end - start, found.name, found.lane, found.value, strict=True
    )
    assert [tuple(map(int, row)) for row in rows] == [
        (ring.PHASE, 10, 210, 1, 0, 200),
        (ring.PHASE, 0, 210, 0, 0, 10),
        (ring.COLLECTIVE, 210, 3210, 0, 1, 4096),
        (ring.ITERATION, 0, 3210, 0, 0, 7),
        (ring.PAUSE, 3210, 43_210, 0, 0, 0),
    ]
    assert [name.rstrip(b"\0") for name in found.names] == [b"evaluation"]
    assert found.skipped == 0


def test_old_events_give_way(flight: Flight) -> None:
    phase = argus.phase("flight_forward")
    begins = []
    for _ in range(1000):
        begins.append(flight.clock.now)
        with phase:
            flight.clock.advance(5)
    # 64 fit, and one is kept free: it could be the one that is being overwritten.
    assert flight.ring().begin.tolist() == begins[-63:]


def test_the_number_of_events_is_a_power_of_two_and_bounded() -> None:
    for wanted, records in ((1, 1), (100, 64), (16_384, 16_384), (10**9, 65_536)):
        segment = _native.Segment(None, run_id="run", rank=0, flight_events=wanted)
        assert place(segment.snapshot(), "FLIGHT_EVENTS")[1] == records
        assert len(segment.snapshot()) < 8 << 20
    assert rings(_native.Segment(None, run_id="run", rank=0).snapshot()) == []


HAMMER = """
import os, sys
import argus
argus.init(run_id="run", rank=0, world_size=1)
print("ready", flush=True)
flat = argus.phase("flat")
while True:
    with argus.iteration():
        for _ in range(100):
            with flat:
                pass
        with argus.collective("all_reduce", "dp", "dp-0", bytes=77):
            pass
"""


@pytest.fixture
def hammering(tmp_path: Path) -> Iterator[tuple[Path, subprocess.Popen[str]]]:
    """A rank that writes as fast as it can into a ring of 1,024 events."""
    process = subprocess.Popen(
        [sys.executable, "-c", HAMMER],
        env=environment(tmp_path, ARGUS_FLIGHT_EVENTS="1024"),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        (path,) = wait_for(lambda: segment_files(tmp_path), "the segment")
        yield path, process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def check_hammered(found: ring.Ring) -> None:
    """What can only be so if no event is a mixture of two."""
    assert found.skipped == 0
    assert (found.begin[1:] >= found.begin[:-1]).sum() >= len(found.begin) - 1 - (
        found.type == ring.ITERATION
    ).sum()
    assert (found.end[1:] >= found.end[:-1]).all(), "events are written when they end"
    flat = found.type == ring.PHASE
    assert (found.value[flat] == (found.end - found.begin)[flat]).all(), "exclusive is all of a flat phase"
    assert (found.value[found.type == ring.COLLECTIVE] == 77).all()
    numbers = found.value[found.type == ring.ITERATION].tolist()
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers))) if numbers else True
    sequences = found.lane[found.type == ring.COLLECTIVE].tolist()
    assert sequences == list(range(sequences[0], sequences[0] + len(sequences))) if sequences else True


def test_read_while_it_is_written(hammering: tuple[Path, subprocess.Popen[str]]) -> None:
    path, _ = hammering
    fd = os.open(path, os.O_RDONLY)
    events, heads = 0, set()
    deadline = time.monotonic() + 30
    try:
        while (events < 30_000 or len(heads) < 50) and time.monotonic() < deadline:
            (found,) = ring.take_file(fd, _native.monotonic_ns())
            check_hammered(found)
            events += len(found.begin)
            heads.add(int(found.end[-1]) if len(found.end) else 0)
    finally:
        os.close(fd)
    assert events >= 30_000
    assert len(heads) >= 50, "the writer went on meanwhile"


def test_after_sigkill(hammering: tuple[Path, subprocess.Popen[str]]) -> None:
    path, process = hammering
    wait_for(lambda: len(rings(path.read_bytes())[0].begin) > 900, "a full ring")
    process.send_signal(signal.SIGKILL)
    process.wait()
    fd = os.open(path, os.O_RDONLY)
    try:
        recording = record_file(fd, False, _native.monotonic_ns())
    finally:
        os.close(fd)
    check_hammered(recording.rings[0])
    assert len(recording.rings[0].begin) == 1023
    shown = trace(recording)
    assert "its process is gone" in shown.notes
    assert {each.name for each in shown.tracks["phases"]} == {"flat"}


def test_off_and_wrong_and_small(tmp_path: Path) -> None:
    code = (
        "import argus, sys\n"
        "argus.init(run_id='run', rank=0, world_size=1)\n"
        "from argus._native import own_segments\n"
        "from argus.flight import ring\n"
        "(segment,) = own_segments()\n"
        "content = segment.snapshot()\n"
        "print(len(ring.take(lambda o, n: content[o:o+n], len(content), 1 << 60)))\n"
    )

    def outcome(**variables: str) -> tuple[str, str]:
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=environment(tmp_path, **variables),
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip(), done.stderr

    on, said = outcome(CUDA_INJECTION64_PATH="")
    assert (int(on) >= 1, said) == (True, "")
    assert outcome(ARGUS_FLIGHT_EVENTS="0") == ("0", "")
    on, said = outcome(ARGUS_FLIGHT_EVENTS="many")
    assert int(on) >= 1
    assert said.count("\n") == 1
    assert "ARGUS_FLIGHT_EVENTS='many' is no number" in said


# ---- hostile bytes ----


@pytest.fixture(scope="module")
def recorded() -> bytes:
    """A segment with a ring that has wrapped around, and kernels."""
    made = Flight(64)
    try:
        for number in range(40):
            with argus.iteration(number), argus.phase("flight_forward"):
                made.clock.advance(1000)
        return made.segment.snapshot()
    finally:
        _native.stop()
        _native.set_clock(0)


class Damaged:
    """A segment of bytes that are not what they should be, as ``record_memory`` wants it."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def snapshot(self) -> bytes:
        return self._content


def test_random_damage_never_does_more_than_lose_events(recorded: bytes) -> None:
    random_ = random.Random(7)
    first = place(recorded, "FLIGHT")[0]
    refused = 0
    for _ in range(1500):
        damaged = bytearray(recorded)
        for _ in range(random_.choice((1, 4, 64))):
            low = 0 if random_.random() < 0.3 else first
            damaged[random_.randrange(low, len(damaged))] = random_.randrange(256)
        if random_.random() < 0.1:
            del damaged[random_.randrange(len(damaged)) :]
        try:
            shown = trace(record_memory(Damaged(bytes(damaged)), True, 1 << 60))
        except SegmentError:
            refused += 1
            continue
        assert sum(len(slices) for slices in shown.tracks.values()) < 200
        assert b"".join(encode([shown]))
    assert refused < 800


@pytest.mark.parametrize("head", [0, 1, 63, 64, (1 << 63) + 5, (1 << 64) - 1])
def test_a_head_that_lies(recorded: bytes, head: int) -> None:
    damaged = bytearray(recorded)
    struct.pack_into("=Q", damaged, place(recorded, "FLIGHT")[0], head)
    (found,) = rings(bytes(damaged))
    assert len(found.begin) <= 63


def test_events_beyond_reason_are_left_out(recorded: bytes) -> None:
    offset, _ = place(recorded, "FLIGHT_EVENTS")
    sound = len(rings(recorded)[0].begin)
    for change in (
        struct.pack("=QQQQ", 5, 1 << 60, 1, 0),  # too long
        struct.pack("=QQQQ", (1 << 64) - 1, 5, 1, 0),  # in the far future
        struct.pack("=QQQQ", 5, 5, 99, 0),  # of no known type
        struct.pack("=QQQQ", 5, 5, 5, 0),  # a kernel in the ring of phases
    ):
        damaged = bytearray(recorded)
        damaged[offset + 20 * EVENT : offset + 21 * EVENT] = change
        (found,) = rings(bytes(damaged))
        assert (len(found.begin), found.skipped) == (sound - 1, 1)


def test_a_phase_that_does_not_exist_is_left_out_and_told(recorded: bytes) -> None:
    damaged = bytearray(recorded)
    offset, _ = place(recorded, "FLIGHT_EVENTS")
    struct.pack_into("=QQQQ", damaged, offset + 20 * EVENT, 5, 5, 1 | 31 << 16, 0)
    shown = trace(record_memory(Damaged(bytes(damaged)), True, 1 << 60))
    assert "1 events made no sense and were left out" in shown.notes


@pytest.mark.parametrize(
    "field", ["iterations", "last_iteration", "last_iteration_end", "open_phase", "pause_begin"]
)
@pytest.mark.parametrize("value", [(1 << 64) - 1, (1 << 64) - 2, 1 << 63, 1 << 56])
def test_a_state_beyond_reason_can_be_written(recorded: bytes, field: str, value: int) -> None:
    damaged = bytearray(recorded)
    offset = _native.layout()["structs"]["state"]["fields"][field][0]
    struct.pack_into("=Q", damaged, place(recorded, "STATE")[0] + offset, value)
    assert b"".join(encode([trace(record_memory(Damaged(bytes(damaged)), True, 1 << 60))]))


@pytest.mark.parametrize("section", [name for name in layout.ON_DEMAND_RECORDS if name.startswith("FLIGHT")])
def test_sections_that_reach_beyond_the_file(recorded: bytes, section: str) -> None:
    at = _native.layout()["structs"]["header"]["fields"]["section"][0]
    number = layout.SECTIONS[section]
    for i in range(layout.CONSTANTS["MAX_SECTIONS"]):
        if struct.unpack_from("=I", recorded, at + 24 * i)[0] == number:
            for field, code, value in ((8, "=I", 1 << 31), (16, "=Q", 1 << 40), (16, "=Q", 3), (4, "=I", 7)):
                damaged = bytearray(recorded)
                struct.pack_into(code, damaged, at + 24 * i + field, value)
                with pytest.raises(SegmentError, match=section):
                    rings(bytes(damaged))


def test_scrapes_do_not_read_the_flight_recorder(tmp_path: Path) -> None:
    segment = _native.Segment(tmp_path / "a.seg", run_id="run", rank=0, flight_events=65_536)
    code = (
        "import os, sys\n"
        "from argus.segment import snapshot\n"
        "from argus.segment.reader import read\n"
        "content = snapshot.take(os.open(sys.argv[1], os.O_RDONLY))\n"
        "print(len(content), read(content, 1 << 60).identity.rank)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(segment.path)], capture_output=True, text=True)
    size, rank = done.stdout.split()
    assert (int(rank), int(size) < 1 << 20, os.stat(tmp_path / "a.seg").st_size > 2 << 20) == (0, True, True)
    assert read(segment.snapshot(), 1 << 60).identity.rank == 0
