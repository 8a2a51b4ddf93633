"""Hung runs: noticed, dumped by py-spy from outside, kept and shown; and what is said where that can't be."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import requests

from argus import _native
from argus.cli import main
from argus.exporter.flight.store import Store
from argus.exporter.lifecycle import FileSource
from argus.exporter.service import DumpOptions, Exporter, Options
from argus.exporter.sources import MemorySource, Rank
from argus.exporter.stacks.dumper import SUFFIX, Dumper
from argus.exporter.stacks.hang import Hang, HangWatch
from argus.segment.files import lock_holder
from argus.stacks import dump as dumps
from argus.stacks.dump import DumpError, dump
from native_support import segment_files, wait_for
from stacks_support import program, recording_of

SECOND = 1_000_000_000

HOLDS_THE_GIL = """
import argus, ctypes, time
argus.init(run_id="run", rank=3)
for _ in range(5):
    with argus.iteration():
        time.sleep(0.01)
print("ready", flush=True)
def keep_the_gil():
    with argus.iteration(), argus.phase("forward"):
        ctypes.PyDLL(None).sleep(10)
while not argus.status()["stacks"]["samples"]:
    pass
keep_the_gil()
"""


@pytest.fixture(scope="module")
def may_trace() -> None:
    """Skips where py-spy is missing or not allowed to look at a child of this process."""
    child = subprocess.Popen(
        [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert child.stdout is not None
        child.stdout.readline()
        dump(child.pid)
    except DumpError as error:
        pytest.skip(str(error))
    finally:
        child.kill()
        child.communicate()


@pytest.fixture
def exporter(tmp_path: Path) -> Iterator[Exporter]:
    options = Options(
        addresses=("127.0.0.1:0",),
        segments=tmp_path,
        disabled=("gpu",),
        dumps=DumpOptions(directory=tmp_path / "dumps", least_s=1.0),
    )
    with Exporter(options) as running:
        yield running


@pytest.mark.usefixtures("may_trace")
def test_a_rank_that_keeps_the_gil(tmp_path: Path, exporter: Exporter, capsys: Any) -> None:
    url = exporter.servers[0].url
    with program(HOLDS_THE_GIL, tmp_path):
        name = wait_for(lambda: [path.name for path in (tmp_path / "dumps").glob("*.txt")], "a dump")[0]
        # From outside its stack is there; the rank itself has taken no sample of it.
        answer = requests.get(f"{url}stacks/{name}", timeout=10)
        assert answer.headers["Content-Type"].startswith("text/plain")
        assert "rank 3 (pp0), after iteration 4, in forward (compute)" in answer.text
        assert "keep_the_gil (<string>:10)" in answer.text
        inside = recording_of(tmp_path, 3).stacks
        assert inside is not None
        assert "keep_the_gil" not in str(inside.stacks)
        listing = requests.get(f"{url}stacks", timeout=10).text
        assert f'<a href="/stacks/{name}">run_r3</a>' in listing
        assert main(["stacks", "--dump", "--rank", "3", "--segments-dir", str(tmp_path)]) == 0
        assert "keep_the_gil" in capsys.readouterr().out
        assert main(["stacks", "--exporter", url, "--rank", "3", "--format", "folded"]) == 0
        assert "<string>:<module>" in capsys.readouterr().out
        assert 'outcome="written"} 1' in requests.get(f"{url}metrics", timeout=10).text
        # Once for each hang.
        assert len(list((tmp_path / "dumps").glob("*.txt"))) == 1


class Runs:
    """Ranks in memory, with a clock that is moved by hand."""

    def __init__(self, ranks: int, walls: float = 1.0) -> None:
        self.now = 1_000 * SECOND
        self.segments = [
            _native.Segment(None, run_id="run", rank=rank, created=self.now) for rank in range(ranks)
        ]
        self.told: list[Hang] = []
        self.watch = HangWatch(lambda now: MemorySource(self.segments).scan(now).ranks, [self.told.append])
        self.walls = walls

    def step(self, *ranks: int) -> None:
        self.now += int(self.walls * SECOND)
        for rank in ranks or range(len(self.segments)):
            self.segments[rank].end_iteration(0, self.now, int(self.walls * SECOND))

    def after(self, seconds: float) -> list[Hang]:
        self.now += int(seconds * SECOND)
        return self.watch.look(self.now)


def test_a_hang_is_told_once_until_the_run_moves() -> None:
    runs = Runs(2)
    for _ in range(5):
        runs.step()
    assert runs.after(119) == []
    (hang,) = runs.after(2)
    assert (hang.run_id, round(hang.age_s), hang.limit_s) == ("run", 121, 120.0)
    assert runs.after(60) == []
    runs.step()
    assert runs.after(1) == []
    assert len(runs.after(121)) == 1


def test_slow_iterations_have_longer_limits() -> None:
    runs = Runs(2, walls=60)
    for _ in range(5):
        runs.step()
    assert runs.after(290) == []
    assert [hang.limit_s for hang in runs.after(20)] == [300.0]


def test_one_rank_that_moves_is_enough_and_declared_pauses_do_not_count() -> None:
    runs = Runs(2)
    runs.step()
    for _ in range(200):
        runs.step(0)
    assert runs.after(1) == []
    runs.segments[1].pause("checkpoint", runs.now)
    assert runs.after(600) == []
    runs.segments[1].pause(None)
    assert runs.after(119) == []
    assert len(runs.after(2)) == 1


def test_before_the_first_iteration_half_an_hour_passes() -> None:
    runs = Runs(1)
    assert runs.after(1_790) == []
    assert len(runs.after(20)) == 1


def test_whoever_waits_in_a_collective_comes_last() -> None:
    runs = Runs(4)
    for _ in range(5):
        runs.step()
    runs.step(0, 1, 3)
    for rank in (0, 1, 3):
        segment = runs.segments[rank]
        segment.collective("all_reduce", "dp", "dp-0")
        segment.open_phase(segment.phase("all_reduce", "communication"), runs.now)
    segment = runs.segments[3]
    segment.open_phase(segment.phase("optimizer", "compute"), runs.now)
    (hang,) = runs.after(200)
    assert [rank.state.identity.rank for rank in hang.ranks] == [2, 3, 0, 1]


def hang_of(base: Path) -> Hang:
    source = FileSource(base, removes=False)
    ranks = source.scan(_native.monotonic_ns()).ranks
    source.close()
    return Hang("run", 130.0, 120.0, tuple(ranks))


class Invisible:
    """Ranks in another PID namespace: the kernel says 0."""

    def __init__(self, folder: Path) -> None:
        self._segment = folder / "run.0.00000000.seg"

    def processes(self, wanted: Any) -> dict[Any, int]:
        return dict.fromkeys(wanted, 0)

    def paths(self, wanted: Any) -> dict[Any, Path]:
        return dict.fromkeys(wanted, self._segment)


def dumped(tmp_path: Path, sources: list[object]) -> tuple[str, dict[str, float]]:
    store = Store(tmp_path / "dumps", 50, 1 << 20, SUFFIX)
    dumper = Dumper(sources, store)
    dumper(hang_of(tmp_path))
    (kept,) = store.kept()
    outcomes = {point.labels[0]: float(point.value) for point in dumper.points()}
    content = store.read(kept.name)
    assert content is not None
    return content.decode(), outcomes


WAITS = "import argus, sys\nargus.init(run_id='run', rank=0)\nprint('ready', flush=True)\nsys.stdin.read()"


def test_what_stands_in_the_way_is_said_in_the_dump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with program(WAITS, tmp_path) as process:
        (tmp_path / "run.torch_fr_0").touch()
        text, outcomes = dumped(tmp_path, [Invisible(tmp_path)])
        assert f"torch's flight record, for torchfrtrace: {tmp_path / 'run.torch_fr_0'}\n" in text
        assert "another PID namespace" in text
        assert "shareProcessNamespace: true" in text
        assert outcomes == {"written": 0.0, "limited": 0.0, "failed": 1.0}

        refuses = _script(tmp_path, "echo 'Permission Denied' >&2; exit 1")
        monkeypatch.setattr(dumps, "find_py_spy", lambda: refuses)
        with pytest.raises(DumpError, match=r"run the exporter as root .* SYS_PTRACE"):
            dump(process.pid)
        _script(tmp_path, "echo 'bad thing' >&2; exit 3")
        with pytest.raises(DumpError, match=f"py-spy failed for process {process.pid}: bad thing"):
            dump(process.pid)
    with pytest.raises(DumpError, match="is gone"):
        dump(process.pid)


def test_a_py_spy_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = tmp_path / "pid"
    monkeypatch.setattr(dumps, "find_py_spy", lambda: _script(tmp_path, f"echo $$ > {mark}; exec sleep 100"))
    begin = time.monotonic()
    with pytest.raises(DumpError, match="took more than"):
        dump(os.getpid(), 1.0)
    assert time.monotonic() - begin < 20
    with pytest.raises(ProcessLookupError):
        os.kill(int(mark.read_text()), 0)


def test_without_py_spy_the_mend_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(DumpError, match=r"pip install 'argus-gpu\[stacks\]'"):
        dump(os.getpid())


def _script(tmp_path: Path, body: str) -> str:
    path = tmp_path / "py-spy"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_the_process_is_the_one_that_holds_the_lock(tmp_path: Path) -> None:
    with program(WAITS, tmp_path) as process:
        (path,) = segment_files(tmp_path)
        fd = os.open(path, os.O_RDONLY)
        assert lock_holder(fd) == process.pid
        source = FileSource(tmp_path, removes=False)
        (rank,) = source.scan(_native.monotonic_ns()).ranks
        assert source.processes([rank.state.identity.key]) == {rank.state.identity.key: process.pid}
    wait_for(lambda: lock_holder(fd) is None, "the lock is gone")
    assert source.processes([rank.state.identity.key]) == {}
    source.close()
    os.close(fd)


def test_dumps_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("argus.exporter.stacks.dumper.dump", lambda pid, deadline_s: f"stack of {pid}\n")
    store = Store(tmp_path / "dumps", 5, 1 << 20, SUFFIX)
    dumper = Dumper([Invisible(tmp_path)], store)
    segment = _native.Segment(None, run_id="run", rank=0)
    (rank,) = MemorySource([segment]).scan(_native.monotonic_ns()).ranks
    identities = [replace(rank.state.identity, rank=number) for number in range(40)]
    many = tuple(Rank(replace(rank.state, identity=identity), True) for identity in identities)
    for _ in range(20):
        dumper(Hang("run", 130.0, 120.0, many))
    outcomes = {point.labels[0]: point.value for point in dumper.points()}
    assert outcomes == {"written": 12, "limited": 8, "failed": 0}
    assert len(store.kept()) == 5
    content = store.read(store.kept()[0].name)
    assert content is not None
    assert content.count(b"== rank") == 8


def test_a_py_spy_that_hangs_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, child = tmp_path / "py-spy", tmp_path / "child"
    program.write_text(f"#!/bin/sh\nsleep 1000 &\necho $! > {child}\nwait\n")
    program.chmod(0o755)
    monkeypatch.setattr(dumps, "find_py_spy", lambda: str(program))
    with pytest.raises(DumpError, match="took more than"):
        dump(os.getpid(), 1.0)
    state = Path("/proc", child.read_text().strip(), "stat")
    # Gone, or a zombie where the container's first process reaps none.
    wait_for(
        lambda: not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z", "its child ends"
    )
