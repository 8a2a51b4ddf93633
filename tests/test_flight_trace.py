"""From rings to what Perfetto shows: every expected slice is worked out on paper."""

from __future__ import annotations

import gzip
import random
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import argus
from argus import _native
from argus.cli import main
from argus.flight.clocks import align
from argus.flight.kernel_names import readable
from argus.flight.model import RankTrace, Slice, lanes, shifted
from argus.flight.perfetto.parse import TraceError, parse
from argus.flight.perfetto.write import encode
from argus.flight.range import RangeError, parse_ranks
from argus.flight.range import parse as parse_range
from argus.flight.recording import record_memory, trace
from native_support import Clock
from perfetto_support import decode, trace_processor
from test_flight_ring import Damaged, place

NATIVE = Path(__file__).parent.parent / "native"


@pytest.fixture
def rank() -> Iterator[tuple[_native.Segment, Clock]]:
    """A traced process, with the clock held."""
    clock = Clock()
    segment = _native.Segment(
        None, run_id="run", rank=3, node="node-a", flight_events=1024, flight_kernels=64
    )
    _native.start(segment)
    yield segment, clock
    _native.stop()
    _native.set_clock(0)


def one_iteration(clock: Clock, number: int) -> None:
    with argus.iteration(number):
        with argus.phase("flight_forward"):
            clock.advance(10)
            with argus.phase("flight_inner"):
                clock.advance(200)
        with argus.collective("all_reduce", "dp", "dp-0", bytes=4096):
            clock.advance(3000)


def test_what_perfetto_shows(rank: tuple[_native.Segment, Clock]) -> None:
    segment, clock = rank
    start = clock.now
    one_iteration(clock, 7)
    one_iteration(clock, 8)
    argus.phase("flight_hang", "host").__enter__()
    clock.advance(50)
    shown = decode(b"".join(encode([trace(record_memory(segment, True, clock.now))])))
    tracks = shown.pop("rank 3 (pp0, node-a)")
    assert shown == {}
    by_track = {
        name: [(each.begin - start, each.end and each.end - start, each.name, each.depth) for each in slices]
        for name, slices in tracks.items()
    }
    assert by_track == {
        "iterations": [
            (0, 3210, "iteration 7", 0),
            (3210, 6420, "iteration 8", 0),
            (6420, None, "iteration 9", 0),
        ],
        "phases": [
            (0, 210, "flight_forward", 0),
            (10, 210, "flight_inner", 1),
            (3210, 3420, "flight_forward", 0),
            (3220, 3420, "flight_inner", 1),
            (6420, None, "flight_hang", 0),
        ],
        "collectives": [(210, 3210, "all_reduce", 0), (3420, 6420, "all_reduce", 0)],
    }
    assert [each.arguments for each in tracks["collectives"]] == [
        {"group": "dp", "group_id": "dp-0", "sequence": sequence, "bytes": 4096} for sequence in (1, 2)
    ]
    assert tracks["phases"][0].arguments == {"kind": "compute", "exclusive_ns": 10}
    assert tracks["iterations"][1].arguments == {"iteration": 8}


def test_an_open_collective_and_an_open_pause(rank: tuple[_native.Segment, Clock]) -> None:
    segment, clock = rank
    one_iteration(clock, 0)
    block = argus.collective("all_reduce", "dp", "dp-0")
    block.__enter__()
    at = clock.now
    clock.advance(9)
    shown = trace(record_memory(segment, True, clock.now))
    arguments = (("group", "dp"), ("group_id", "dp-0"), ("sequence", 2))
    assert shown.tracks["collectives"][-1] == Slice(at, None, "all_reduce", arguments)
    block.__exit__(None, None, None)
    with argus.pause("checkpoint"):
        clock.advance(9)
        shown = trace(record_memory(segment, True, clock.now))
    assert shown.tracks["pauses"] == [Slice(at + 9, None, "checkpoint")]
    assert shown.tracks["iterations"][-1].end is not None, "no iteration is under way"


def test_kernels_by_stream(rank: tuple[_native.Segment, Clock], tmp_path: Path) -> None:
    compiler = shutil.which("g++")
    if compiler is None or not NATIVE.is_dir():
        pytest.skip("no g++, or no native sources next to the tests")
    program = tmp_path / "writer"
    object_ = tmp_path / "flight.o"
    strict = ["-Wall", "-Wextra", "-Werror", "-g", f"-I{NATIVE}", "-fsanitize=address,undefined"]
    subprocess.run(
        ["gcc", "-std=c11", *strict, "-c", str(NATIVE / "flight.c"), "-o", str(object_)],
        check=True,
        timeout=120,
    )
    source = Path(__file__).with_name("flight_writer.cpp")
    subprocess.run(
        [compiler, "-std=c++17", *strict, str(source), str(object_), "-o", str(program)],
        check=True,
        timeout=120,
    )
    written = subprocess.run([str(program)], stdout=subprocess.PIPE, check=True, timeout=60).stdout
    content = bytearray(rank[0].snapshot())
    rings, events, names = written[:16], written[16 : 16 + 64 * 32], written[16 + 64 * 32 :]
    content[(at := place(content, "FLIGHT")[0] + 16) : at + 16] = rings
    content[(at := place(content, "FLIGHT_KERNELS")[0]) : at + len(events)] = events
    content[(at := place(content, "FLIGHT_KERNEL_NAMES")[0]) : at + len(names)] = names

    shown = trace(record_memory(Damaged(bytes(content)), True, 1 << 40))
    assert list(shown.tracks) == ["GPU 1 stream 8", "GPU 1 stream 7"]
    kernels = sorted(each for slices in shown.tracks.values() for each in slices)
    assert [(each.begin, each.end) for each in kernels] == [
        (1000 * i, 1000 * i + 900) for i in range(37, 100)
    ]
    assert [each.name for each in kernels[:3]] == ["softmax<float>", "ncclDevKernel_AllReduce", "gemm_kernel"]
    first = dict(kernels[0].arguments)
    assert first == {"kernel_class": _native.kernel_classes()[1], "correlation": 37}
    perfetto = decode(b"".join(encode([shown])))["rank 3 (pp0, node-a)"]
    assert [len(perfetto[f"GPU 1 stream {number}"]) for number in (7, 8)] == [31, 32]


@pytest.mark.parametrize(
    ("name", "shown"),
    [  # by c++filt, without template arguments and parameters
        ("_ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOpIfEEEEvT1_", "at::native::reduce_kernel"),
        ("_Z10saxpy_gpu_PfS_", "saxpy_gpu_"),
        ("_ZN7cutlass6KernelI66cutlass_80_tensorop_s1688gemm_f16", "cutlass::Kernel"),
        ("_ZN12_GLOBAL__N_14copyEv", "copy"),
        ("_ZNK5outer5innerEv", "outer::inner"),
        ("_ZN5outer20cut_off_in_the_mid", "outer::cut_off_in_the_mid"),
        ("ampere_sgemm_128x64_tn", "ampere_sgemm_128x64_tn"),
        (
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)",
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)",
        ),
        ("_Z", "_Z"),
        ("_ZN", "_ZN"),
        ("", ""),
    ],
)
def test_readable_kernel_names(name: str, shown: str) -> None:
    assert readable(name) == shown


def test_slices_that_cross_are_put_side_by_side() -> None:
    crossing = [
        Slice(0, 10, "a"),
        Slice(5, 15, "b"),
        Slice(6, 9, "c"),
        Slice(10, 12, "d"),
        Slice(3, None, "e"),
    ]
    assert [[each.name for each in lane] for lane in lanes(crossing)] == [["a", "c", "d"], ["e", "b"]]


def test_random_slices_come_back_from_perfetto_as_they_were() -> None:
    random_ = random.Random(3)
    slices = []
    for number in range(3000):
        begin = random_.randrange(10_000)
        length = random_.choice((0, 1, random_.randrange(50), random_.randrange(3000)))
        end = None if number % 500 == 0 else begin + length
        slices.append(Slice(begin, end, f"n{number % 17}", (("number", number), ("text", f"é{number % 3}"))))
    made = RankTrace("run-é", "pp0", 0, "node", 1, "clock", 17, {"phases": slices}, ("a note",))
    content = b"".join(encode([made]))
    shown = [each for lane in decode(content)["rank 0 (pp0, node)"].values() for each in lane]
    assert sorted((each.begin, each.end or -1, each.arguments["number"]) for each in shown) == sorted(
        (each.begin, each.end or -1, number) for number, each in enumerate(slices)
    )
    for whole in (content, gzip.compress(content)):
        (again,) = parse(whole)
        assert sorted(again.tracks["phases"], key=str) == sorted(slices, key=str)
        assert (again.run_id, again.rank, again.node, again.attempt) == ("run-é", 0, "node", 1)
        assert (again.clock, again.wall_ns, again.notes) == ("clock", 17, ("a note",))


def test_perfettos_own_trace_processor(rank: tuple[_native.Segment, Clock], tmp_path: Path) -> None:
    binary = trace_processor()
    if binary is None:
        pytest.skip(
            "Perfetto's trace processor is not here (ARGUS_TRACE_PROCESSOR); its messages are used instead"
        )
    segment, clock = rank
    start = clock.now
    one_iteration(clock, 7)
    path = tmp_path / "a.pftrace"
    path.write_bytes(b"".join(encode([trace(record_memory(segment, False, clock.now))])))
    query = tmp_path / "query.sql"
    query.write_text(
        "select t.name as track, s.ts, s.dur, s.name as slice, s.depth from slice s "
        "join track t on s.track_id = t.id order by s.ts, s.depth, t.name;"
    )
    done = subprocess.run(
        [str(binary), "-q", str(query), str(path)], capture_output=True, text=True, timeout=120, check=True
    )
    rows = [line.replace('"', "").split(",") for line in done.stdout.splitlines()[1:] if line]
    assert [(track, int(ts) - start, int(dur), name, int(depth)) for track, ts, dur, name, depth in rows] == [
        ("iterations", 0, 3210, "iteration 7", 0),
        ("phases", 0, 210, "flight_forward", 0),
        ("phases", 10, 200, "flight_inner", 1),
        ("collectives", 210, 3000, "all_reduce", 0),
    ]


# ---- which iterations, which ranks ----


def test_some_iterations(rank: tuple[_native.Segment, Clock]) -> None:
    segment, clock = rank
    for number in range(10):
        one_iteration(clock, number)

    def names(text: str) -> list[str]:
        shown = trace(record_memory(segment, True, clock.now), parse_range(text))
        assert len(shown.tracks["phases"]) == 2 * len(
            [each for each in shown.tracks["iterations"] if each.end is not None]
        )
        return [each.name for each in shown.tracks["iterations"]]

    assert names("2") == ["iteration 8", "iteration 9", "iteration 10"]
    assert names("3-5") == ["iteration 3", "iteration 4", "iteration 5"]
    assert names("9-99") == ["iteration 9"]
    with pytest.raises(RangeError, match=r"iteration 0 to iteration 9 are"):
        names("50-60")


@pytest.mark.parametrize("text", ["", "a", "0", "5-3", "-3", "1-2-3", "٣"])
def test_wrong_iterations(text: str) -> None:
    with pytest.raises(RangeError):
        parse_range(text)


def test_ranks() -> None:
    assert parse_ranks(["3", "1-2", "7,9-10"]) == {1, 2, 3, 7, 9, 10}
    for wrong in ("", "x", "3-1", "0-999999999", "1,,2"):
        with pytest.raises(RangeError):
            parse_ranks([wrong])


# ---- clocks ----


def node(
    name: str, ranks: list[int], offset: int, wall_error: int, *, ops: str = "all_reduce"
) -> list[RankTrace]:
    """Ranks of one machine, whose clock shows `offset` more than the first one's."""
    random_ = random.Random(name)
    made = []
    for number in ranks:
        slices = []
        for sequence in range(1, 101):
            end = 1_000_000 * sequence + random_.randrange(20_000) + offset  # up to 20 us apart
            if sequence % 10 == 0 and name == "b":
                end += 5_000_000  # now and then one rank is told much later
            arguments = (("group", "world"), ("group_id", "world-0"), ("sequence", sequence))
            slices.append(Slice(end - 300_000 - random_.randrange(500_000), end, ops, arguments))
        made.append(
            RankTrace(
                "run",
                "pp0",
                number,
                name,
                0,
                f"boot-{name}",
                10**18 - offset + wall_error,
                {"collectives": slices},
            )
        )
    return made


def test_clocks_of_two_machines_are_aligned_on_shared_collectives() -> None:
    offset = 7_654_321_000_000_123
    first, second = node("a", [0, 1], 0, 0), node("b", [2, 3], offset, 40_000_000)
    aligned, (said,) = align([*first, *second])
    assert aligned[:2] == first
    for each, original in zip(aligned[2:], second, strict=True):
        moved = original.tracks["collectives"][0].begin - each.tracks["collectives"][0].begin
        assert abs(moved - offset) < 10_000, "well within the 20 us by which ranks learn of the end"
    assert "aligned with a on the ends of 100 shared collectives" in said


def test_clocks_in_a_chain() -> None:
    first, second, third = (
        node("a", [0], 0, 0),
        node("b", [1], 10**12, 0),
        node("c", [2], -(10**9), 0, ops="reduce_scatter"),
    )
    # c shares collectives with b alone.
    only = [
        each._replace(arguments=(*each.arguments[:1], ("group_id", "dp-1"), *each.arguments[2:]))
        for each in third[0].tracks["collectives"]
    ]
    third[0].tracks["collectives"][:] = only
    second[0].tracks["collectives"] += shifted(third[0], 10**12 + 10**9).tracks["collectives"]
    aligned, said = align([*first, *second, *third])
    ends = [each.tracks["collectives"][0].end for each in aligned]
    assert all(abs(end - ends[0]) < 60_000 for end in ends)
    assert len(said) == 2


def test_without_shared_collectives_the_wall_clock_decides_and_that_is_said() -> None:
    first, second = node("a", [0], 0, 0), node("b", [1], 10**12, 3_000_000, ops="broadcast")
    aligned, (said,) = align([*first, *second])
    assert "wall-clock time only" in said
    moved = second[0].tracks["collectives"][0].begin - aligned[1].tracks["collectives"][0].begin
    assert moved == 10**12 - 3_000_000, "off by as much as the wall clock"


def test_collectives_of_another_attempt_are_not_the_same() -> None:
    first = node("a", [0], 0, 0)
    second = node("b", [1], 10**12 + 500 * 10**9, -500 * 10**9)  # the same numbers, 500 s later
    _, (said,) = align([*first, *second])
    assert "wall-clock time only" in said


# ---- traces from elsewhere ----


def test_what_is_no_trace_of_ours(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = b"".join(encode(node("a", [0], 0, 0)))
    for content, message in (
        (b"hello", "not a Perfetto trace"),
        (b"", "no rank is in it"),
        (gzip.compress(good)[:-20], "cut short"),
        (gzip.compress(good)[:10] + b"\xff" * 50, "damaged"),
    ):
        with pytest.raises(TraceError, match=message):
            parse(content)
    path = tmp_path / "wrong.pftrace"
    path.write_bytes(b"hello")
    assert main(["trace", str(path), "-o", str(tmp_path / "out")]) == 1
    assert f"argus trace: {path}: not a Perfetto trace" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [path]


def test_random_damage_to_a_trace_is_refused_or_read() -> None:
    good = b"".join(encode(node("a", [0], 0, 0)))
    random_ = random.Random(5)
    for _ in range(400):
        damaged = bytearray(good)
        for _ in range(random_.choice((1, 3, 20))):
            damaged[random_.randrange(len(damaged))] = random_.randrange(256)
        try:
            found = parse(bytes(damaged))
            align(found)
            b"".join(encode(found))
        except TraceError:
            pass


def test_merging_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = []
    for name, ranks, offset in (("a", [0, 1], 0), ("b", [2], 10**12)):
        paths.append(tmp_path / f"{name}.pftrace.gz")
        paths[-1].write_bytes(gzip.compress(b"".join(encode(node(name, ranks, offset, 0)))))
    out = tmp_path / "both.pftrace.gz"
    assert main(["trace", *map(str, paths), "-o", str(out)]) == 0
    said = capsys.readouterr()
    assert "3 ranks, 300 intervals" in said.out
    assert "b: clock aligned with a on the ends of 100 shared collectives" in said.err
    shown = decode(out.read_bytes())
    firsts = {rank: tracks["collectives"][0].end for rank, tracks in shown.items()}
    assert set(firsts) == {"rank 0 (pp0, a)", "rank 1 (pp0, a)", "rank 2 (pp0, b)"}
    assert max(firsts.values()) - min(firsts.values()) < 40_000
    assert struct.unpack("<H", out.read_bytes()[:2])[0] == 0x8B1F
    assert main(["trace", *map(str, paths), str(paths[1]), "-o", str(out)]) == 0
    said = capsys.readouterr()
    assert "3 ranks, 300 intervals" in said.out
    assert said.err.count("more than once") == 1
    assert "rank 2 is there more than once; the latest is shown" in said.err
    assert main(["trace", str(paths[0]), "--rank", "3", "-o", str(out)]) == 2
