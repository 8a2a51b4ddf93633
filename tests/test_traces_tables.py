"""ARGUS traces in all their containers, and what is counted from them."""

from __future__ import annotations

import gzip
import os
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from argus.traces import Accountant, RankIteration, TraceError, columns, load
from make_traces import traces
from traces_support import DATA, csv_text, json_text, row, write_csv

pq = pytest.importorskip("pyarrow.parquet")
pa = pytest.importorskip("pyarrow")

ROWS = [
    row(0, 7, "forward", 0.0, 2.0, kind="compute", node="a", dp=0, bytes=None, op=""),
    row(0, 7, "all_reduce", 2.0, 1.0, kind="communication", node="a", dp=0, bytes=4e6, op="all_reduce"),
    row(1, 7, "forward", 0.0, 2.5, kind="compute", node="b", dp=1, bytes=None, op=""),
    row(1, 7, "all_reduce", 2.5, 0.5, kind="communication", node="b", dp=1, bytes=4e6, op="all_reduce"),
]


def account(path: Path) -> list[RankIteration]:
    table, _ = load([str(path)])
    with table:
        accountant = Accountant(table)
        return [rank for number, rows in table for rank in accountant.ranks(number, rows)]


def seconds_by_phase(path: Path) -> dict[tuple[int, int, str], float]:
    table, _ = load([str(path)])
    result: dict[tuple[int, int, str], float] = {}
    with table:
        accountant = Accountant(table)
        for number, rows in table:
            for rank in accountant.ranks(number, rows):
                for code, seconds in zip(rank.rows["phase"], rank.seconds, strict=True):
                    key = (rank.rank, number, table.phases[code].name)
                    result[key] = result.get(key, 0.0) + float(seconds)
    return result


def containers(folder: Path) -> dict[str, Path]:
    text, lines = csv_text(ROWS), json_text(ROWS)
    paths = {name: folder / f"trace-{name}" for name in ("csv", "csv.gz", "jsonl", "jsonl.gz", "parquet")}
    paths["csv"].write_text(text)
    paths["csv.gz"].write_bytes(gzip.compress(text.encode()))
    paths["jsonl"].write_text(lines)
    paths["jsonl.gz"].write_bytes(gzip.compress(lines.encode()))
    pq.write_table(pa.Table.from_pylist(ROWS), paths["parquet"])
    return paths


@pytest.mark.parametrize("container", ["csv", "csv.gz", "jsonl", "jsonl.gz", "parquet"])
def test_every_container_gives_the_same_table(tmp_path: Path, container: str) -> None:
    table, notes = load([str(containers(tmp_path)[container])])
    with table:
        assert not notes
        assert table.iterations == [7]
        rows = table.read(7)
        assert rows["rank"].tolist() == [0, 0, 1, 1]
        assert [table.phases[code].name for code in rows["phase"]] == ["forward", "all_reduce"] * 2
        assert [table.phases[code].kind for code in rows["phase"]] == ["compute", "communication"] * 2
        assert rows["duration"].tolist() == [2.0, 1.0, 2.5, 0.5]
        assert rows["collective"].tolist() == [-1, 0, -1, 0]
        assert np.isnan(rows["bytes"][[0, 2]]).all()
        assert rows["bytes"][[1, 3]].tolist() == [4e6, 4e6]
        assert {rank.node for rank in table.ranks.values()} == {"a", "b"}
        assert [table.ranks[rank].dp for rank in (0, 1)] == [0, 1]
        assert table.ranks[0].tp == -1
        assert table.ranks[0].run_id == f"trace-{container.split('.')[0]}"


def test_nested_and_concurrent_rows_are_subtracted_as_live(tmp_path: Path) -> None:
    # forward 0..10 holds an all_reduce 2..5, which holds gc 3..4; then a 10..14 and b 12..16 overlap.
    rows = [
        row(0, 0, "forward", 0, 10),
        row(0, 0, "all_reduce", 2, 3),
        row(0, 0, "gc", 3, 1),
        row(0, 0, "a", 10, 4),
        row(0, 0, "b", 12, 4),
    ]
    path = write_csv(tmp_path / "nested.csv", rows)
    seconds = {key[2]: value for key, value in seconds_by_phase(path).items()}
    assert seconds == pytest.approx({"forward": 7, "all_reduce": 2, "gc": 1, "a": 2, "b": 4})
    [rank] = account(path)
    assert rank.wall == pytest.approx(16)
    assert rank.busy == pytest.approx(7 + 1 + 2 + 4)  # compute and host, each second once


def test_a_row_that_outlives_its_parent_and_one_that_begins_with_it(tmp_path: Path) -> None:
    rows = [
        row(0, 0, "short", 0, 2),  # begins with "long": the longer one is the outer one
        row(0, 0, "long", 0, 6),
        row(0, 0, "late", 5, 3),
    ]
    seconds = {k[2]: v for k, v in seconds_by_phase(write_csv(tmp_path / "t.csv", rows)).items()}
    assert seconds == pytest.approx({"short": 2, "long": 3, "late": 3})


def test_consecutive_iterations_are_contiguous_and_gaps_are_not_counted(tmp_path: Path) -> None:
    rows = [
        row(0, 1, "step", 0, 10),
        row(0, 2, "step", 12, 8),  # the 2 s before it belong to it
        row(0, 5, "step", 50, 8),  # iterations 3 and 4 are missing
        row(0, 6, "step", 3, 9),  # the clock began again
    ]
    walls = {rank.iteration: rank.wall for rank in account(write_csv(tmp_path / "t.csv", rows))}
    assert walls == pytest.approx({1: 10, 2: 10, 5: 8, 6: 9})


def test_kinds_that_the_trace_does_not_say_are_those_of_live_tracing(tmp_path: Path) -> None:
    rows = [row(0, 0, name, i, 1) for i, name in enumerate(("forward", "data_loading", "all_reduce", "gc"))]
    table, _ = load([str(write_csv(tmp_path / "t.csv", rows))])
    with table:
        kinds = {phase.name: phase.kind for phase in table.phases}
    assert kinds == {
        "forward": "compute",
        "data_loading": "host",
        "all_reduce": "communication",
        "gc": "host",
    }


def test_rows_in_any_order_and_over_several_files(tmp_path: Path) -> None:
    rows = [row(rank, number, "forward", number, 0.5) for rank in range(3) for number in range(4)]
    write_csv(tmp_path / "a.csv", rows[::-2])
    write_csv(tmp_path / "b.csv", rows[-2::-2])
    (tmp_path / "notes.txt").write_text("not a trace")
    table, notes = load([str(tmp_path)])
    with table:
        assert table.iterations == [0, 1, 2, 3]
        assert all(table.read(number)["rank"].tolist() == [0, 1, 2] for number in table.iterations)
        assert {rank.run_id for rank in table.ranks.values()} == {tmp_path.name}
    assert [line for line in notes.lines() if "notes.txt" in line]


def test_broken_rows_are_left_out_and_told(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(
        "rank,iteration,phase,start,duration\n"
        "0,1,forward,0.0,1.0\n"
        "0,1,forward,abc,1.0\n"
        "x,1,forward,0.0,1.0\n"
        "0,1,forward,2.0,-1.0\n"
        "0,1,,2.0,1.0\n"
        "0,1\n"
        "0,1.5,forward,0.0,1.0\n"
        "0,1,backward,1.0,1.0\n"
    )
    table, notes = load([str(path)])
    with table:
        assert table.rows == 2
    told = "\n".join(notes.lines())
    for part in ("row 2, column start: 'abc'", "column rank: 'x'", "duration", "phase", "another length"):
        assert part in told


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty"),
        (b"a,b\n1,2\n", "rank, iteration, phase, start, duration"),
        (b"rank,iteration,phase,start,duration\n", "no trace files"),
        (b"rank,iteration,phase,start,duration\n?,1,forward,0,1\n", "not a number in column rank"),
        (b"\x1f\x8b\x08\x00broken", "damaged gzip"),
        (b'{"rank": 0, "iteration": 1}\n', "missing here: phase, start, duration"),
        (b'{"schemaVersion": 1}', "no traceEvents"),
        (b"PAR1 and nothing else", "not a readable Parquet file"),
    ],
)
def test_files_without_a_valid_row_say_what_is_wrong(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "t"
    path.write_bytes(content)
    with pytest.raises(TraceError) as error:
        load([str(path)])
    assert says in str(error.value)
    assert str(path) in str(error.value) or says == "no trace files"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="nowhere: No such file"):
        load([str(tmp_path / "nowhere")])


def test_a_gzip_that_was_cut_gives_what_is_whole(tmp_path: Path) -> None:
    rows = [row(0, number, "forward", number, 0.5 + number * 1e-6) for number in range(20_000)]
    packed = gzip.compress(csv_text(rows).encode())
    path = tmp_path / "t.csv.gz"
    path.write_bytes(packed[: len(packed) // 2])
    table, notes = load([str(path)])
    with table:
        assert 1_000 < table.rows < 20_000
    assert "damaged from row" in "\n".join(notes.lines())


def test_parquet_without_pyarrow_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = containers(tmp_path)["parquet"]
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(TraceError, match=r"argus-gpu\[traces\].*CSV or JSON Lines"):
        load([str(path)])


def test_several_runs_want_a_choice(tmp_path: Path) -> None:
    rows = [row(0, 1, "forward", 0, 1, run_id="one"), row(1, 1, "forward", 0, 1, run_id="two")]
    path = str(write_csv(tmp_path / "t.csv", rows))
    with pytest.raises(TraceError, match="--run-id"):
        load([path])
    table, _ = load([path], run="two")
    with table:
        assert set(table.ranks) == {1}


def test_an_unknown_kind_accuses_nobody(tmp_path: Path) -> None:
    table, notes = load([str(write_csv(tmp_path / "t.csv", [row(0, 1, "f", 0, 1, kind="gpu")]))])
    with table:
        assert table.phases[0].kind == "mixed"
    assert "'gpu'" in "\n".join(notes.lines())


def test_the_committed_traces_are_what_the_script_makes() -> None:
    for name, text in traces().items():
        assert gzip.decompress((DATA / name).read_bytes()).decode() == text


def test_values_beyond_reason_are_left_out(tmp_path: Path) -> None:
    rows = [
        row(0, 1, "forward", 0, 1),
        row(2**31, 1, "forward", 0, 1),
        row(0, 2**53, "forward", 0, 1),
        row(0, -1, "forward", 0, 1),
        row(0, 1, "forward", 1e300, 1),
        row(0, 1, "forward", 0, 1e300),
        row(0, 1, "forward", "nan", 1),
        row(0, 1, "forward", 0, "inf"),
    ]
    table, notes = load([str(write_csv(tmp_path / "t.csv", rows))])
    with table:
        assert table.rows == 1
    assert len(list(notes.lines())) == 4


def test_a_gzip_of_several_members_and_padding(tmp_path: Path) -> None:
    head, *rest = csv_text([row(0, n, "forward", n, 1) for n in range(5)]).splitlines(keepends=True)
    path = tmp_path / "t.csv.gz"
    path.write_bytes(
        gzip.compress((head + rest[0]).encode()) + gzip.compress("".join(rest[1:]).encode()) + bytes(9)
    )
    table, notes = load([str(path)])
    with table:
        assert table.iterations == [0, 1, 2, 3, 4]
    assert not notes


@pytest.mark.parametrize("start", ["", "rank,iteration,phase,start,duration\n0,1,forward,1,1\n"])
def test_lines_without_an_end_do_not_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: str
) -> None:
    """A file of another kind may hold gigabytes of zeros, or gzip them into little."""
    monkeypatch.setattr(columns, "_LONGEST_LINE", 1 << 20)
    path = tmp_path / "zeros.csv.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(start.encode())
        for _ in range(64):
            file.write(bytes(1 << 20))
    tracemalloc.start()
    try:
        if start:
            table, notes = load([str(path)])
            table.close()
            assert "damaged from row 2 on" in "\n".join(notes.lines())
        else:
            with pytest.raises(TraceError, match="a line is longer than"):
                load([str(path)])
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()


def test_a_first_line_that_is_no_header(tmp_path: Path) -> None:
    path = tmp_path / "field.csv"
    path.write_text('"' + "x\n" * 200_000)
    with pytest.raises(TraceError, match="field larger"):
        load([str(path)])


def test_folders_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are read all the same, and alone it is said why there is nothing."""
    (tmp_path / "closed").mkdir()
    write_csv(tmp_path / "open.csv", ROWS)
    scan = os.scandir

    def refuse(path: str) -> object:
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    table, notes = load([str(tmp_path)])
    table.close()
    assert table.rows == len(ROWS)
    assert any("closed: Permission denied" in line for line in notes.lines())
    with pytest.raises(TraceError, match="closed: Permission denied"):
        load([str(tmp_path / "closed")])
