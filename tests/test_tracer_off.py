"""Where tracing is off or can't be had: training is as it was, and one line says why."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from native_support import (
    run_python,
    segment_files,
    small_disk,
)
from tracer_support import PROGRAM, WAITS


def test_disabled(tmp_path: Path) -> None:
    done = run_python(PROGRAM.format(end=""), tmp_path, ARGUS_DISABLE="1")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {"enabled": False, "reason": "ARGUS_DISABLE is set"}
    assert list(tmp_path.iterdir()) == []


def test_without_init_nothing_happens(tmp_path: Path) -> None:
    done = run_python(PROGRAM.format(end="argus.finish()").replace("argus.init(", "dict("), tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {"enabled": False, "reason": "argus.init() was not called"}


def test_a_broken_extension_leaves_training_alone(tmp_path: Path) -> None:
    poison = """
import sys
class Poison:
    def find_spec(self, name, path=None, target=None):
        if name == "argus._native":
            raise ImportError("wrong ELF class")
sys.meta_path.insert(0, Poison())
"""
    more = """
argus.work(tokens=3)
@argus.phase("a")
def f():
    return 3
with argus.pause("evaluation"):
    assert f() == 3
argus.finish()
print(argus.__version__)
"""
    done = run_python(poison + PROGRAM.format(end=more), tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert json.loads(lines[0])["enabled"] is False
    assert "wrong ELF class" in json.loads(lines[0])["reason"]
    assert lines[1][0].isdigit()
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("argus: tracing is off: ")
    assert list(tmp_path.iterdir()) == []


def expect_off(tmp_path: Path, *words: str) -> None:
    done = run_python(PROGRAM.format(end=""), tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["enabled"] is False
    (line,) = done.stderr.splitlines()
    assert line.startswith("argus: tracing is off: ")
    for word in (*words, "ARGUS_DIR"):
        assert word in line


def test_a_directory_that_is_a_link(tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    target.mkdir()
    (tmp_path / f"argus-{os.geteuid()}").symlink_to(target)
    expect_off(tmp_path, "remove it")
    assert list(target.iterdir()) == []


def test_a_directory_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / f"argus-{os.geteuid()}").touch()
    expect_off(tmp_path, "Not a directory")


def test_a_base_that_is_missing(tmp_path: Path) -> None:
    expect_off(tmp_path / "missing", "No such file")


@pytest.mark.parametrize(
    ("base", "words"),
    [
        ("missing/deep", ("No such file", "make the directory")),
        ("file", ("Not a directory", "make the directory")),
        ("/sys", ("not permitted", "let user")),
    ],
)
def test_the_mend_fits_the_trouble(tmp_path: Path, base: str, words: tuple[str, ...]) -> None:
    (tmp_path / "file").touch()
    done = run_python(PROGRAM.format(end=""), tmp_path / base)
    assert json.loads(done.stdout)["enabled"] is False
    for word in words:
        assert word in done.stderr
    assert "remove it" not in done.stderr


def test_limits_of_the_process(tmp_path: Path) -> None:
    code = """
import argus, json, os, resource
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
argus.init(run_id="r")
with argus.iteration(), argus.phase("a"):
    print(json.dumps(argus.status()))
"""
    done = run_python(code, tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["enabled"] is False
    assert "ulimit -f" in done.stderr


def test_a_tracer_that_cannot_be_imported_leaves_training_alone(tmp_path: Path) -> None:
    """When init() is called, no file can be opened any more."""
    code = """
import argus, json, os, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (3, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
argus.init(run_id="r")
with argus.iteration(), argus.phase("a"):
    status = argus.status()
argus.finish()
print(json.dumps(status))
"""
    done = run_python(code, tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["enabled"] is False
    assert "Too many open files" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("rank='x'", "rank='x'"),
        ("rank=-1", "rank=-1"),
        ("world_size=0", "from 1 to"),
        ("attempt=2**31", "attempt=2147483648"),
        ("run_id=7", "run_id=7"),
        ("tensor_parallel=1.5", "tensor_parallel=1.5"),
        ("coordinates=5", "dict"),
        ("coordinates={'dp': 'x'}", "coordinates['dp']='x'"),
    ],
)
def test_wrong_arguments_are_told_by_name(tmp_path: Path, call: str, words: str) -> None:
    done = run_python(f"import argus\nargus.init({call})\nprint(argus.status()['enabled'])", tmp_path)
    assert done.stdout.strip() == "False"
    assert words in done.stderr
    assert "correct the call" in done.stderr


def test_a_log_that_raises(tmp_path: Path) -> None:
    code = """
import argus, logging
def refuse(record):
    raise RuntimeError("no logging here")
logging.getLogger("argus").addFilter(refuse)
argus.init(run_id="r")
argus.init(run_id="r")
argus.phase("a", kind="nonsense")
print(argus.status()["enabled"])
"""
    done = run_python(code, tmp_path)
    assert (done.returncode, done.stdout.strip()) == (0, "True"), done.stderr


def test_many_threads_call_init(tmp_path: Path) -> None:
    code = """
import argus, sys, threading
argus.status()
sys.setswitchinterval(1e-6)
everybody = threading.Barrier(16)
def start():
    everybody.wait()
    argus.init(run_id="r")
threads = [threading.Thread(target=start) for _ in range(16)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(argus.status()["enabled"])
"""
    done = run_python(code, tmp_path)
    assert done.stdout.strip() == "True", done.stderr
    assert "tracing is off" not in done.stderr
    assert not list(tmp_path.glob("*/*.seg"))


def test_another_users_directory(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("giving a directory away needs root")
    directory = tmp_path / f"argus-{os.geteuid()}"
    directory.mkdir()
    os.chown(directory, 12345, 12345)
    expect_off(tmp_path, "belongs to user 12345")


def test_an_open_directory_is_closed_to_others(tmp_path: Path) -> None:
    directory = tmp_path / f"argus-{os.geteuid()}"
    directory.mkdir()
    directory.chmod(0o777)
    run_python(WAITS, tmp_path)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o750


def test_a_full_disk(tmp_path: Path) -> None:
    with small_disk(tmp_path, 128):
        expect_off(tmp_path, "No space left", "make room")
        assert segment_files(tmp_path) == []


def test_a_python_without_the_gil(tmp_path: Path) -> None:
    pretend = "import sys; sys.abiflags = 't'\n"
    done = run_python(pretend + PROGRAM.format(end=""), tmp_path)
    assert json.loads(done.stdout)["enabled"] is False
    assert "without the GIL" in done.stderr


def test_a_truncated_segment_turns_tracing_off_once(tmp_path: Path) -> None:
    code = """
import argus, os
argus.init(run_id="r")
path = argus.status()["segment"]
os.truncate(path, 0)
for _ in range(20):
    with argus.iteration(), argus.phase("a"):
        argus.work(tokens=1)
print(argus.status()["enabled"], argus.status()["reason"])
"""
    done = run_python(code, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "False the segment file was truncated by another program"
    assert len(done.stderr.splitlines()) == 1
