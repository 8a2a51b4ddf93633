"""init and finish in real processes: beginnings, ends, and everything that can go wrong."""

from __future__ import annotations

import json
import os
import signal
import stat
import time
from pathlib import Path

import pytest

from argus.tracer import cost
from native_support import (
    CONSTANTS,
    Snapshot,
    run_python,
    segment_files,
    wait_for,
)
from tracer_support import PROGRAM, WAITS, ready, start


def test_a_clean_end_leaves_nothing(tmp_path: Path) -> None:
    done = run_python(PROGRAM.format(end=""), tmp_path, RANK="5", LOCAL_RANK="1", LOCAL_WORLD_SIZE="4")
    assert (done.returncode, done.stderr) == (0, "")
    status = json.loads(done.stdout)
    assert status["enabled"]
    assert (status["run_id"], status["rank"], status["role"], status["world_size"]) == (
        "run one",
        5,
        "pp1",
        8,
    )
    assert (status["dp"], status["tp"], status["pp"], status["cp"], status["ep"]) == (0, 1, 1, 0, 0)
    assert (status["iterations"], status["events"], status["dropped"], status["open_phases"]) == (5, 10, 0, 0)
    path = Path(status["segment"])
    assert path.parent == tmp_path / f"argus-{os.geteuid()}"
    assert path.name.startswith("run_one-")
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o750
    assert segment_files(tmp_path) == []


@pytest.mark.parametrize("umask", ["0o000", "0o077"])
def test_modes_whatever_the_umask(tmp_path: Path, umask: str) -> None:
    code = f"import os; os.umask({umask})" + PROGRAM.format(end="os._exit(0)")
    run_python(code, tmp_path)
    (path,) = segment_files(tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o750


def test_what_the_segment_holds(tmp_path: Path) -> None:
    done = run_python(
        PROGRAM.format(end="import os; os._exit(0)"), tmp_path, RANK="5", LOCAL_RANK="1", LOCAL_WORLD_SIZE="4"
    )
    assert done.returncode == 0, done.stderr
    (path,) = segment_files(tmp_path)
    snapshot = Snapshot(path.read_bytes())
    assert snapshot.identity["run_id"] == "run one"
    assert snapshot.identity["local_rank"] == 1
    assert snapshot.state["run_state"] == CONSTANTS["STATE_RUNNING"]
    (record,) = snapshot.collectives
    # tensor 2 and pipeline 2 of 8: data-parallel groups of 2 ranks, 2 apart; rank 5 with 7.
    assert (record["group_id"], record["members"], record["nodes"]) == ("dp-5", 2, 1)
    assert (record["bytes"], record["completed"]) == (500, 5)
    for slot in snapshot.iterations:
        assert 0 < slot["busy"] <= slot["wall"]
        assert slot["phase"][0] == slot["busy"]
    source = snapshot.sources["phases"]
    assert (source["enabled"], source["events"]) == (1, 10)
    # Ten events of less than 10 µs, and the writing of five iterations.
    assert 0 < source["cost"] < 1_000_000


def test_an_uncaught_exception_is_a_failure(tmp_path: Path) -> None:
    hook = "import sys; sys.excepthook = lambda *args: print('my hook', args[0].__name__)\n"
    done = run_python(hook + PROGRAM.format(end="raise KeyError('x')"), tmp_path)
    assert done.returncode == 1
    assert "my hook KeyError" in done.stdout
    (path,) = segment_files(tmp_path)
    snapshot = Snapshot(path.read_bytes())
    assert snapshot.state["run_state"] == CONSTANTS["STATE_FAILED"]
    assert snapshot.sources["phases"]["enabled"] == 0


@pytest.mark.parametrize("end", ["sys.exit(0)", "argus.finish(); argus.finish()", "sys.exit('said')"])
def test_ends_that_are_clean(tmp_path: Path, end: str) -> None:
    run_python(PROGRAM.format(end=end), tmp_path)
    assert segment_files(tmp_path) == []


def test_finish_then_init_again(tmp_path: Path) -> None:
    code = """
import argus, sys
hook = sys.excepthook
for _ in range(2):
    argus.init(run_id="r")
    argus.init(run_id="r")
    with argus.phase("a"):
        pass
    print(argus.status()["events"])
    argus.finish()
print(argus.status()["reason"], sys.excepthook is hook)
"""
    done = run_python(code, tmp_path)
    assert done.stdout.splitlines() == ["1", "1", "argus.finish() was called True"]
    assert done.stderr.splitlines() == ["argus: argus.init() was called again; the first call stands"]


def test_sigkill_leaves_the_file_unlocked_and_the_next_start_takes_it_away(tmp_path: Path) -> None:
    process = start(WAITS, tmp_path)
    assert ready(process) == "True"
    (path,) = segment_files(tmp_path)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert Snapshot(path.read_bytes()).state["run_state"] == CONSTANTS["STATE_RUNNING"]
    second = start(WAITS, tmp_path)
    assert ready(second) == "True"
    (now,) = segment_files(tmp_path)
    assert now != path
    second.communicate("\n")
    assert segment_files(tmp_path) == []


def test_a_second_process_of_the_same_rank_turns_itself_off(tmp_path: Path) -> None:
    first = start(WAITS, tmp_path)
    assert ready(first) == "True"
    (path,) = segment_files(tmp_path)
    second = start(WAITS, tmp_path)
    assert ready(second) == "False"
    _, said = second.communicate("\n")
    assert len(said.splitlines()) == 1
    assert "tracing is off: another process has rank 0 of run 'r'" in said
    assert str(path.name) in said
    assert "rank=" in said
    assert segment_files(tmp_path) == [path]
    # Another rank, and another run, are welcome.
    for more in ({"RANK": "1", "LOCAL_RANK": "1"}, {}):
        code = WAITS if more else WAITS.replace('"r"', '"r.0"')
        third = start(code, tmp_path, **more)
        assert ready(third) == "True"
        third.communicate("\n")
    first.communicate("\n")


def test_two_that_start_in_the_same_moment(tmp_path: Path) -> None:
    processes = [start(WAITS, tmp_path) for _ in range(4)]
    assert sorted(ready(process) for process in processes) == ["False", "False", "False", "True"]
    for process in processes:
        process.communicate("\n")


def test_what_dead_ranks_left_goes_after_an_hour(tmp_path: Path) -> None:
    run_python(PROGRAM.format(end="import os; os._exit(0)"), tmp_path, RANK="5", LOCAL_RANK="1")
    (old,) = segment_files(tmp_path)
    fresh = old.with_name("other.3.00000000.seg")
    fresh.write_bytes(old.read_bytes())
    unrelated = old.with_name("notes.txt")
    unrelated.write_text("mine")
    unfinished = old.with_name("x.1.00000000.seg.tmp")
    unfinished.touch()
    two_hours_ago = time.time() - 7200
    for path in (old, unrelated, unfinished):
        os.utime(path, (two_hours_ago, two_hours_ago))
    run_python(WAITS, tmp_path)
    assert sorted(path.name for path in old.parent.iterdir()) == ["notes.txt", fresh.name]


def test_a_live_segment_stays_however_old_its_file(tmp_path: Path) -> None:
    process = start(WAITS, tmp_path)
    ready(process)
    (path,) = segment_files(tmp_path)
    os.utime(path, (0, 0))
    run_python(WAITS, tmp_path, RANK="1", LOCAL_RANK="1")
    assert segment_files(tmp_path) == [path]
    process.communicate("\n")


def test_sizes_that_do_not_fit_cost_the_coordinates_only(tmp_path: Path) -> None:
    done = run_python(PROGRAM.format(end="").replace("world_size=8", "world_size=7"), tmp_path)
    status = json.loads(done.stdout)
    assert (status["enabled"], status["dp"], status["role"]) == (True, None, "pp0")
    (line,) = done.stderr.splitlines()
    assert "does not divide the 7 ranks" in line


def test_given_coordinates(tmp_path: Path) -> None:
    code = """
import argus, json
argus.init(run_id="r", coordinates={"dp": 3, "pp": 1, "sp": 7}, role="actor")
print(json.dumps(argus.status()))
"""
    done = run_python(code, tmp_path)
    status = json.loads(done.stdout)
    assert [status[name] for name in ("dp", "tp", "pp", "cp", "ep")] == [3, None, 1, None, None]
    assert status["role"] == "actor"
    assert "sp left out" in done.stderr


def test_importing_is_light(tmp_path: Path) -> None:
    code = """
import sys, time
import typing, importlib
begin = time.perf_counter()
import argus
argus.phase("a")
seconds = time.perf_counter() - begin
heavy = {"numpy", "torch", "requests", "logging", "prometheus_client"} & set(sys.modules)
print(seconds < 0.05, heavy)
argus.init(run_id="r")
print({"numpy", "torch", "requests", "prometheus_client"} & set(sys.modules))
"""
    done = run_python(code, tmp_path)
    assert done.stdout.splitlines() == ["True set()", "set()"], done.stderr


def test_public_names() -> None:
    import argus

    assert argus.__all__ == [
        "__version__",
        "collective",
        "data",
        "finish",
        "init",
        "iteration",
        "pause",
        "phase",
        "status",
        "torch",
        "work",
    ]
    for name in argus.__all__:
        if name != "torch":
            assert getattr(argus, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        argus.nothing  # noqa: B018


def test_megatron_that_comes_up_later(tmp_path: Path) -> None:
    code = """
import argus, json, os, sys, types
argus.init(run_id="r", rank=5, world_size=8)
state = types.ModuleType("megatron.core.parallel_state")
state.model_parallel_is_initialized = lambda: True
state.get_pipeline_model_parallel_rank = lambda: 3
distributed = types.ModuleType("torch.distributed")
for step in range(3):
    with argus.iteration(), argus.collective("all_reduce", "dp"):
        pass
    if step == 0:
        sys.modules[state.__name__], sys.modules[distributed.__name__] = state, distributed
print(json.dumps(argus.status()))
os._exit(0)
"""
    done = run_python(code, tmp_path)
    status = json.loads(done.stdout)
    assert (status["role"], status["pp"], status["dp"]) == ("pp3", 3, None), done.stderr
    (path,) = segment_files(tmp_path)
    identity = Snapshot(path.read_bytes()).identity
    assert (identity["role"], identity["pp"], identity["dp"]) == ("pp3", 3, -1)


def test_the_writer_keeps_its_lock_while_others_start_and_look(tmp_path: Path) -> None:
    """Starting a second rank in one process must not open the first one's file."""
    code = """
import argus, sys
from argus.tracer.place import create_segment, PlaceError
first = create_segment(run_id="r", rank=0)
second = create_segment(run_id="r", rank=1)
try:
    create_segment(run_id="r", rank=0)
except PlaceError as error:
    print("another process has" in str(error), flush=True)
sys.stdin.readline()
"""
    process = start(code, tmp_path)
    assert ready(process) == "True"
    for path in segment_files(tmp_path):
        rank = path.name.split(".")[1]
        done = run_python(
            f"import argus; argus.init(run_id='r', rank={rank}); print(argus.status()['enabled'])", tmp_path
        )
        assert done.stdout.strip() == "False"
    process.communicate("\n")


def test_phases_of_a_real_second(tmp_path: Path) -> None:
    """The real clock: what a phase says against the monotonic clock around it."""
    code = """
import argus, json, os, time
from argus import _native
argus.init(run_id="r")
begin = time.monotonic_ns()
with argus.phase("sleep"):
    inner = time.monotonic_ns()
    time.sleep(0.05)
    inner = time.monotonic_ns() - inner
print(inner, time.monotonic_ns() - begin)
os._exit(0)
"""
    done = run_python(code, tmp_path)
    inner, outer = map(int, done.stdout.split())
    (path,) = segment_files(tmp_path)
    assert inner <= Snapshot(path.read_bytes()).total("sleep") <= outer


def test_status_of_a_process_that_waits(tmp_path: Path) -> None:
    process = start(WAITS, tmp_path)
    assert ready(process) == "True"
    (path,) = wait_for(lambda: segment_files(tmp_path), "the segment")
    fd = os.open(path, os.O_RDONLY)
    data = os.pread(fd, os.fstat(fd).st_size, 0)
    assert Snapshot(data).state["iterations"] == 1
    process.communicate("\n")
    # The file is gone, its last state is still there for those who kept it open.
    data = os.pread(fd, os.fstat(fd).st_size, 0)
    os.close(fd)
    assert Snapshot(data).state["run_state"] == CONSTANTS["STATE_ENDED"]
    assert not path.exists()


def test_the_cost_of_a_phase_on_a_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is interrupted, 500 phases or 500 rounds of nothing, it stays a cost."""
    phases = iter([60_000, 55_000, 900_000, 55_000, 55_000])
    nothing = iter([5_000, 5_000, 5_000, 800_000, 5_000])
    monkeypatch.setattr(cost, "_time_phases", lambda phase: next(phases))
    monkeypatch.setattr(cost, "_time_nothing", lambda: next(nothing))
    assert cost.cost_of_a_phase() == (55_000 - 5_000) / 500
