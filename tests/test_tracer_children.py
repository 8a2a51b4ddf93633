"""Threads, forked children, workers and ranks of multiprocessing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from native_support import (
    CONSTANTS,
    Snapshot,
    environment,
    run_python,
    segment_files,
)

THREADS = """
import argus, os, sys, threading, time
sys.setswitchinterval(1e-5)
argus.init(run_id="r")

def work(name):
    inner = argus.phase("inner")
    for n in range(2000):
        with argus.phase(name):
            with inner:
                argus.work(tokens=1)
            with argus.collective("all_reduce", "dp", bytes=1):
                pass
        time.sleep(0)

threads = [threading.Thread(target=work, args=(f"thread{n}",)) for n in range(4)]
begin = time.monotonic_ns()
with argus.iteration():
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print(time.monotonic_ns() - begin)
os._exit(0)
"""


def test_threads_share_the_time_between_them(tmp_path: Path) -> None:
    done = run_python(THREADS, tmp_path)
    assert done.returncode == 0, done.stderr
    (path,) = segment_files(tmp_path)
    snapshot = Snapshot(path.read_bytes())
    (slot,) = snapshot.iterations
    assert snapshot.occurrences("inner") == 8000
    assert [snapshot.occurrences(f"thread{n}") for n in range(4)] == [2000] * 4
    assert snapshot.work == {("tokens", ""): 8000}
    assert snapshot.sources["phases"]["events"] == 24_000
    assert snapshot.sources["phases"]["dropped"] == 0
    assert snapshot.collectives[0]["completed"] == 8000
    names = snapshot.phase_names
    assert (
        sum(slot["phase"]) == sum(snapshot.total(name) for name in names) <= slot["wall"] <= int(done.stdout)
    )


def test_forked_children_trace_nothing(tmp_path: Path) -> None:
    code = """
import argus, os, sys
argus.init(run_id="r")
phase = argus.phase("a")
with argus.iteration(), phase:
    child = os.fork()
    if child == 0:
        for _ in range(3):
            with argus.iteration(), argus.phase("a"), argus.collective("barrier"):
                argus.work(tokens=1)
        argus.init(run_id="r", rank=1)
        print(argus.status()["enabled"], flush=True)
        sys.exit(0)
    os.waitpid(child, 0)
print(argus.status()["events"], argus.status()["iterations"], os.path.exists(argus.status()["segment"]))
os._exit(0)
"""
    done = run_python(code, tmp_path)
    assert done.stdout.splitlines() == ["False", "1 1 True"]
    assert done.stderr.splitlines() == [
        "argus: tracing is off: this process was forked from a traced one; "
        "start the other ranks before argus.init()"
    ]
    (path,) = segment_files(tmp_path)
    snapshot = Snapshot(path.read_bytes())
    assert snapshot.occurrences("a") == 1
    assert snapshot.work == {}


def test_children_forked_before_init_trace_themselves(tmp_path: Path) -> None:
    code = """
import argus, os
children = []
for rank in range(2):
    child = os.fork()
    if child == 0:
        argus.init(run_id="r", rank=rank, world_size=2)
        with argus.phase("a"):
            pass
        os._exit(0 if argus.status()["enabled"] else 1)
    children.append(child)
print([os.waitpid(child, 0)[1] for child in children])
"""
    done = run_python(code, tmp_path)
    assert done.stdout.strip() == "[0, 0]", done.stderr
    assert len(segment_files(tmp_path)) == 2


def test_a_dataloaders_workers_are_no_ranks(tmp_path: Path) -> None:
    """multiprocessing's forked workers end by os._exit, its spawned ones import the program again."""
    code = """
import multiprocessing, argus
def work(x):
    with argus.phase("worker"):
        return x * 2, argus.status()["enabled"]
if __name__ == "__main__":
    argus.init(run_id="r")
    with multiprocessing.get_context("fork").Pool(2) as pool:
        print(pool.map(work, [1, 2]))
    print(argus.status()["enabled"], argus.status()["events"])
"""
    program = tmp_path / "program.py"
    program.write_text(code)
    done = subprocess.run(
        [sys.executable, str(program)],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.splitlines() == ["[(2, False), (4, False)]", "True 0"], done.stderr


RANKS = """
import multiprocessing, os, sys, argus
def rank(number, end):
    argus.init(run_id="r", rank=number, world_size=2)
    with argus.phase("a"):
        pass
    exec(end)
if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    ranks = [context.Process(target=rank, args=(n, sys.argv[2])) for n in range(2)]
    for each in ranks:
        each.start()
    for each in ranks:
        each.join()
    print([each.exitcode for each in ranks])
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize(
    ("end", "code", "failed"),
    [("pass", 0, False), ("sys.exit(0)", 0, False), ("sys.exit(1)", 1, True), ("1 / 0", 1, True)],
)
def test_ranks_that_are_children_of_multiprocessing(
    tmp_path: Path, method: str, end: str, code: int, failed: bool
) -> None:
    """Forked ones end by os._exit, and an exception in either is caught and printed."""
    program = tmp_path / "program.py"
    program.write_text(RANKS)
    done = subprocess.run(
        [sys.executable, str(program), method, end],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.strip() == f"[{code}, {code}]", done.stderr
    states = [Snapshot(path.read_bytes()).state["run_state"] for path in segment_files(tmp_path)]
    assert states == [CONSTANTS["STATE_FAILED"]] * (2 if failed else 0)
