"""The segment reader: values by hand, and bytes that nobody should trust."""

from __future__ import annotations

import random
import struct

import numpy as np
import pytest

from argus import _native
from argus.segment import layout
from argus.segment.reader import IncompatibleSegment, SegmentError, read
from argus.segment.sections import MAX_BYTES
from argus.segment.state import RunState
from exporter_support import segment

SECOND = 1_000_000_000


def _iterations(walls: list[int], *, gap: int = SECOND) -> tuple[bytes, int]:
    """A snapshot with iterations of these wall times, ``gap`` apart, and the end of the last one."""
    rank = segment()
    forward = rank.phase("forward", "compute")
    now = 100 * SECOND
    for number, wall in enumerate(walls):
        rank.observe_phase(forward, wall // 2)
        now += gap
        rank.end_iteration(number, now, wall)
    return rank.snapshot(), now


def _field(struct_name: str, field: str) -> tuple[int, str]:
    offset, kind, _ = _native.layout()["structs"][struct_name]["fields"][field]
    return offset, {"u8": "Q", "u4": "I", "i4": "i", "i8": "q", "f8": "d"}.get(kind, kind)


def _section(snapshot: bytes, name: str) -> tuple[int, int]:
    """Position in the header's directory, and offset, of a section."""
    header = np.frombuffer(snapshot, layout.HEADER, 1)[0]
    for position, entry in enumerate(header["section"][: header["sections"]]):
        if entry["id"] == layout.SECTIONS[name]:
            return position, int(entry["offset"])
    raise AssertionError(name)


def _patch(snapshot: bytes, offset: int, code: str, *values: float) -> bytes:
    changed = bytearray(snapshot)
    struct.pack_into(code, changed, offset, *values)
    return bytes(changed)


def _patch_header(snapshot: bytes, field: str, value: int) -> bytes:
    offset, code = _field("header", field)
    return _patch(snapshot, offset, code, value)


def test_identity_and_state() -> None:
    rank = segment(
        3, run_id="job-17", role="encoder", node="node-a", local_rank=1, world_size=8, attempt=2, dp=1, tp=0,
        pp=1, cp=0, gpu_uuid="GPU-1", pci_bus_id="0000:17:00.0",
    )  # fmt: skip
    state = read(rank.snapshot(), _native.monotonic_ns())
    who = state.identity
    assert who.key == ("job-17", "encoder", 3)
    assert (who.node, who.local_rank, who.world_size, who.attempt) == ("node-a", 1, 8, 2)
    assert (who.dp, who.tp, who.pp, who.cp, who.ep) == (1, 0, 1, 0, -1)
    assert (who.gpu_uuid, who.pci_bus_id) == ("GPU-1", "0000:17:00.0")
    assert state.run_state is RunState.RUNNING
    assert state.last_iteration is None
    assert state.window() is None
    assert state.skipped == 0


def test_window_values_by_hand() -> None:
    rank = segment()
    forward, load = rank.phase("forward", "compute"), rank.phase("data_loading", "host")
    rank.phase("never", "compute")
    sync = rank.collective("all_reduce", "dp", "dp-0", members=4, nodes=2)
    # wall, forward, data_loading, collective occurrences of (seconds, bytes)
    rows = [
        (0.4, 0.1, 0.0, [(0.010, 1_000_000)]),
        (0.2, 0.2, 0.0, [(0.020, 1_000_000), (0.040, 1_000_000), (0.060, 1_000_000)]),
        (0.3, 0.3, 0.1, []),
        (0.9, 0.5, 0.1, [(0.050, 1_000_000)]),
    ]
    now = 50 * SECOND
    for number, (wall, compute, host, occurrences) in enumerate(rows, start=7):
        rank.observe_phase(forward, round(compute * 1e9))
        if host:
            rank.observe_phase(load, round(host * 1e9))
        for seconds, payload in occurrences:
            rank.observe_collective(sync, round(seconds * 1e9), payload)
        now += SECOND
        rank.end_iteration(number, now, round(wall * 1e9))
    state = read(rank.snapshot(), now + SECOND)
    window = state.window()
    assert window is not None
    assert window.iterations == 4
    assert window.wall == (0.2, 0.35, 0.9)
    assert window.busy == (0.1, 0.3, 0.6)  # 0.1, 0.2, 0.4, 0.6
    assert [(phase.name, phase.kind, spread) for phase, spread in window.phases] == [
        ("forward", "compute", (0.1, 0.25, 0.5)),
        ("data_loading", "host", (0.0, 0.05, 0.1)),
    ]
    [(collective, values)] = window.collectives
    assert (collective.op, collective.group, collective.group_id) == ("all_reduce", "dp", "dp-0")
    assert (collective.members, collective.nodes, collective.bytes) == (4, 2, 5_000_000)
    assert values.fastest == 0.010
    # Typical occurrences 0.010 (once), 0.040 (three times), 0.050 (once): the third of five.
    assert values.typical == 0.040
    assert values.occurrences == 5 / 4
    assert values.bandwidth == pytest.approx(1_000_000 / 0.010)
    assert state.last_iteration == 10
    assert state.completed == 4
    assert state.iteration_sum_ns == 1_800_000_000
    assert state.busy_sum_ns == 1_300_000_000
    assert state.iteration_seconds is not None
    assert state.iteration_seconds.count == 4


@pytest.mark.parametrize(
    ("count", "gap", "expected"),
    [
        (3, SECOND, None),
        (4, 30 * SECOND, 4),  # long steps: the last four
        (50, SECOND, 11),  # those of the last 10 s, both ends included
        (50, SECOND // 4, 41),
        (200, SECOND // 100, 64),
    ],
)
def test_window_holds_ten_seconds_but_four_to_sixty_four(count: int, gap: int, expected: int | None) -> None:
    snapshot, now = _iterations([10_000_000] * count, gap=gap)
    window = read(snapshot, now).window()
    assert (window and window.iterations) == expected


def test_window_of_a_rank_that_stands_still_keeps_four() -> None:
    snapshot, now = _iterations([1_000_000 * k for k in range(1, 11)])
    window = read(snapshot, now + 3600 * SECOND).window()
    assert window is not None
    assert window.iterations == 4
    assert window.wall == (0.007, 0.0085, 0.010)


def test_open_phase_and_pause() -> None:
    rank = segment()
    forward = rank.phase("forward", "mixed")
    begin = 77 * SECOND
    rank.open_phase(forward, begin)
    state = read(rank.snapshot(), begin + SECOND)
    assert state.open is not None
    assert (state.open.name, state.open.kind, state.open.begin_ns) == ("forward", "mixed", begin)
    rank.pause("evaluation", begin + 5)
    paused = read(rank.snapshot(), begin + SECOND).open
    assert paused is not None
    assert (paused.name, paused.kind, paused.begin_ns) == ("evaluation", "pause", begin + 5)
    rank.pause(None)
    rank.open_phase(-1)
    assert read(rank.snapshot(), begin).open is None


def test_open_phase_of_a_machine_up_for_years() -> None:
    # Only 56 bits of the beginning are stored, 2.28 years.
    rank = segment()
    begin = (1 << 56) - SECOND
    rank.open_phase(rank.phase("forward", "compute"), begin)
    state = read(rank.snapshot(), (1 << 56) + SECOND)
    assert state.open is not None
    assert state.open.begin_ns == begin


def test_work_and_sources() -> None:
    rank = segment()
    rank.work("tokens", "", 1024.0)
    rank.work("tokens", "", 1024.0)
    rank.work("samples", "forward", 2.0)
    state = read(rank.snapshot(), _native.monotonic_ns())
    assert {(work.unit, work.phase): work.total for work in state.work} == {
        ("tokens", ""): 2048.0,
        ("samples", "forward"): 2.0,
    }


def test_another_version_says_which_side_to_upgrade() -> None:
    snapshot = segment().snapshot()
    mine = _native.layout()["constants"]["LAYOUT_VERSION"]
    with pytest.raises(
        IncompatibleSegment, match=r"layout 2, this exporter reads layout 1; upgrade the exporter"
    ):
        read(_patch_header(snapshot, "layout_version", mine + 1), 0)
    with pytest.raises(IncompatibleSegment, match="upgrade the training job's"):
        read(_patch_header(snapshot, "layout_version", mine - 1), 0)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("byte_order", 0x04030201, "byte order"),
        ("header_bytes", 8, "header's size"),
        ("sections", 25, "too many sections"),
        ("sections", 0, "IDENTITY is missing"),
        ("total_bytes", 1 << 40, "truncated"),
        ("total_bytes", 0, "beyond the file's end"),
    ],
)
def test_bad_header(field: str, value: int, message: str) -> None:
    with pytest.raises(SegmentError, match=message):
        read(_patch_header(segment().snapshot(), field, value), 0)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("record_bytes", 8, "wrong size"),
        ("records", 1 << 31, "too many records"),
        ("offset", 12, "misplaced"),
        ("offset", 0, "misplaced"),
        ("offset", (1 << 64) - 8, "beyond the file's end"),
        ("id", 1, "listed twice"),
        ("id", 99, "PHASES|ITERATIONS|missing"),
    ],
)
def test_bad_directory(field: str, value: int, message: str) -> None:
    snapshot = segment().snapshot()
    position, _ = _section(snapshot, "ITERATIONS")
    table, _ = _field("header", "section")
    offset, code = _field("section", field)
    changed = _patch(snapshot, table + position * layout._dtype("section").itemsize + offset, code, value)
    with pytest.raises(SegmentError, match=message):
        read(changed, 0)


def test_not_a_segment_at_all() -> None:
    for content, message in [
        (b"", "too few"),
        (b"x" * 100, "too few"),
        (b"x" * 10_000, "magic"),
        (bytes(MAX_BYTES + 1), "too many"),
    ]:
        with pytest.raises(SegmentError, match=message):
            read(content, 0)


def test_unknown_sections_are_skipped() -> None:
    snapshot = segment().snapshot()
    position, _ = _section(snapshot, "WORK")
    table, _ = _field("header", "section")
    changed = _patch(snapshot, table + position * layout._dtype("section").itemsize, "I", 4711)
    assert read(changed, 0).work == ()


def test_text_is_made_harmless() -> None:
    rank = segment(run_id="run")
    snapshot = bytearray(rank.snapshot())
    _, base = _section(bytes(snapshot), "IDENTITY")
    offset, _ = _field("identity", "node")
    snapshot[base + offset : base + offset + 8] = b"a\x01\xff\n\x7fb\x00c"
    assert read(bytes(snapshot), 0).identity.node == "a\ufffd\ufffd\ufffd\ufffdb"


def test_bad_identity_is_an_error() -> None:
    snapshot = segment().snapshot()
    _, base = _section(snapshot, "IDENTITY")
    for field, value in [("rank", -1), ("seq", 3)]:
        offset, code = _field("identity", field)
        with pytest.raises(SegmentError):
            read(_patch(snapshot, base + offset, code, value), 0)
    with pytest.raises(SegmentError, match="no run id"):
        read(_patch(snapshot, base + _field("identity", "run_id")[0], "B", 0), 0)


def test_bad_records_are_left_out_and_counted() -> None:
    rank = segment()
    names = ["a", "b", "c", "d"]
    for name in names:
        rank.observe_phase(rank.phase(name, "compute"), SECOND)
    for number in range(6):
        rank.end_iteration(number, (number + 1) * SECOND, SECOND)
    snapshot = rank.snapshot()
    size = layout.RECORDS["PHASES"].itemsize
    _, base = _section(snapshot, "PHASES")
    seconds = _field("phase", "seconds")[0]
    changed = _patch(snapshot, base + size + _field("phase", "kind")[0], "Q", 9)  # b: no such kind
    changed = _patch(changed, base + 2 * size, "B", ord("a"))  # c: a second "a"
    changed = _patch(changed, base + 3 * size + seconds + _field("histogram", "bucket")[0], "Q", 1 << 60)  # d
    _, ring = _section(snapshot, "ITERATIONS")
    slot = layout.RECORDS["ITERATIONS"].itemsize
    changed = _patch(changed, ring + slot + _field("iteration", "wall")[0], "Q", 1 << 63)
    changed = _patch(changed, ring + 2 * slot + _field("iteration", "seq")[0], "Q", 5)  # being written
    state = read(changed, 10 * SECOND)
    assert [phase.name for phase in state.phases] == ["a"]
    assert state.slots["ordinal"].tolist() == [1, 4, 5, 6]
    assert state.skipped == 5


def test_random_damage_never_surprises() -> None:
    """Some thousands of random byte flips over a real snapshot: a result or a SegmentError, nothing else."""
    rank = segment(world_size=4, node="node", dp=0)
    phases = [rank.phase(f"phase{k}", kind) for k, kind in enumerate(("compute", "host", "communication"))]
    sync = rank.collective("all_reduce", "dp", "dp-0", members=4, nodes=2)
    rank.work("tokens", "", 5.0)
    now = 10 * SECOND
    for number in range(80):
        for phase in phases:
            rank.observe_phase(phase, 1_000_000 * (number + 1))
        rank.observe_collective(sync, 1_000_000, 4096)
        now += SECOND // 10
        rank.end_iteration(number, now, SECOND // 10)
    snapshot = rank.snapshot()
    used = [position for position, byte in enumerate(snapshot) if byte]
    header = range(layout.HEADER.itemsize)
    generator = random.Random(20260)
    good = 0
    for _ in range(4000):
        changed = bytearray(snapshot)
        for _ in range(generator.choice((1, 2, 8, 64))):
            where = generator.choice((header, used, range(len(snapshot))))
            changed[generator.choice(where)] = generator.choice(
                (0, 0x7F, 0x80, 0xFF, generator.randrange(256))
            )
        if generator.random() < 0.1:
            del changed[generator.randrange(len(changed)) :]
        try:
            state = read(bytes(changed), now)
        except SegmentError:
            continue
        good += 1
        window = state.window()
        assert window is None or 4 <= window.iterations <= 64
    assert good > 400
