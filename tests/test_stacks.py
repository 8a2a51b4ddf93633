"""The stack sampler in a real process: what it sees, what it costs nobody, how it ends."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from argus import _native
from argus.stacks.table import StackTable, take
from argus.tracer.stacks import settings
from native_support import run_python, wait_for
from stacks_support import program, samples_in, stuck, table_of, training


class Sampled:
    """This process, sampled into a segment in memory."""

    def __init__(self, hz: float = 50.0) -> None:
        self.segment = _native.Segment(None, run_id="test", rank=0, stacks=True)
        _native.start(self.segment)
        _native.stacks_start(self.segment, threading.get_ident(), hz)

    @property
    def samples(self) -> int:
        return int(_native.stacks_status()["samples"])

    def table(self) -> StackTable:
        content = self.segment.snapshot()
        table = take(lambda offset, length: content[offset : offset + length], len(content))
        assert table is not None
        return table


@pytest.fixture
def sampled() -> Iterator[Sampled]:
    it = Sampled()
    yield it
    _native.stacks_stop()
    _native.stop()


def turn(sampled: Sampled, count: int) -> None:
    """Computes in Python until so many more ticks were sampled."""
    wanted, deadline = sampled.samples + count, time.monotonic() + 30
    while sampled.samples < wanted:
        assert time.monotonic() < deadline


def wait(seconds: float) -> float:
    begin = time.monotonic()
    time.sleep(seconds)
    return time.monotonic() - begin


def test_computing_and_waiting_are_both_seen_for_as_long_as_they_last(sampled: Sampled) -> None:
    begin = time.monotonic()
    turn(sampled, 10)
    computing = time.monotonic() - begin
    waited = wait(0.5)
    turn(sampled, 1)
    elapsed = time.monotonic() - begin
    table = sampled.table()
    # A sample stands for as many ticks of 20 ms as have passed, however late it is taken.
    assert sum(stack.samples for stack in training(table)) * 0.02 == pytest.approx(elapsed, abs=0.1)
    assert samples_in(table, "test_stacks:wait") * 0.02 == pytest.approx(waited, abs=0.1)
    assert samples_in(table, "test_stacks:turn") * 0.02 == pytest.approx(elapsed - waited, abs=0.1)
    assert computing < elapsed - waited


def test_the_line_that_waits_is_named(sampled: Sampled) -> None:
    line = sys._getframe().f_lineno + 2
    while sampled.samples < 5:
        time.sleep(0.3)
    stack = training(sampled.table())[0]
    assert stack.functions[-1].startswith("test_stacks:test_the_line")
    assert stack.line in (line - 1, line)
    assert stack.functions[0] == "training thread"


def test_a_call_that_kept_the_gil_is_counted_in_full_afterwards(sampled: Sampled) -> None:
    import ctypes

    def hold() -> None:
        ctypes.PyDLL(None).usleep(400_000)

    before = sampled.samples
    hold()
    wait_for(lambda: sampled.samples > before, "a sample")
    assert samples_in(sampled.table(), "hold") * 0.02 == pytest.approx(0.4, abs=0.1)


def test_other_threads_are_there_and_count_in_no_category(sampled: Sampled) -> None:
    end = threading.Event()

    def helper() -> None:
        end.wait()

    thread = threading.Thread(target=helper)
    thread.start()
    turn(sampled, 5)
    end.set()
    thread.join()
    table = sampled.table()
    others = [stack for stack in table.stacks if stack.functions[0] == "other threads"]
    assert any("helper" in name for stack in others for name in stack.functions)
    assert sum(stack.samples for stack in training(table)) == pytest.approx(sampled.samples, abs=2)


def test_recursion_without_end_costs_a_bounded_stack(sampled: Sampled) -> None:
    def deeper(levels: int) -> None:
        if levels:
            deeper(levels - 1)
        else:
            turn(sampled, 3)

    deeper(400)
    deepest = max(training(sampled.table()), key=lambda stack: len(stack.functions))
    assert len(deepest.functions) == 161
    assert deepest.functions[1] == "(more)"
    assert any(name == "test_stacks:turn" for name in deepest.functions[-2:])


def test_a_storm_of_new_functions_stays_within_its_bounds(sampled: Sampled) -> None:
    # Names of 150 bytes, which fill a generation's text before its number of names.
    functions = {}
    for number in range(300):
        name = f"f{number:03}_{'x' * 150}"
        exec(f"def {name}(run): run()", functions)

    def chain(numbers: range) -> None:
        if numbers:
            functions[f"f{numbers[0]:03}_{'x' * 150}"](lambda: chain(numbers[1:]))
        else:
            turn(sampled, 1)

    size = len(sampled.segment.snapshot())
    for first in range(0, 300, 20):
        chain(range(first, first + 20))
    table = sampled.table()
    seen = {name for stack in table.stacks for name in stack.functions if "xxx" in name}
    assert 100 < len(seen) < 300
    assert table.cut > 0
    assert len(sampled.segment.snapshot()) == size


def test_settings() -> None:
    good = {"": 10.0, "1": 10.0, "true": 10.0, "0": 0.0, "off": 0.0, "20": 20.0, "0.5": 0.5}
    assert {text: settings({"ARGUS_STACKS": text}, "/").hz for text in good} == good
    for text in ("x", "-3", "1000", "nan"):
        wrong = settings({"ARGUS_STACKS": text}, "/")
        assert wrong.hz == 10.0
        assert "ARGUS_STACKS=" in wrong.complaint


PROGRAM = """
import argus, os, signal, sys, time
argus.init(run_id="r", rank=0)
"""


def test_off_by_environment_leaves_nothing(tmp_path: Path) -> None:
    code = PROGRAM + "print(argus.status()['stacks']['active'], len(os.listdir('/proc/self/task')))"
    done = run_python(code, tmp_path, ARGUS_STACKS="0")
    assert done.stdout.split() == ["False", "1"], done.stderr


def test_wrong_patterns_are_told_once_and_lose_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "patterns"
    path.write_text("data_loading ^mine:\nnonsense ^other:\n")
    code = PROGRAM + "print(argus.status()['stacks']['active'])"
    done = run_python(code, tmp_path, ARGUS_STACK_PATTERNS=str(path))
    assert done.stdout.split() == ["True"]
    assert done.stderr.count("argus:") == 1
    assert f"{path}:2: no such category" in done.stderr


def test_children_and_ends(tmp_path: Path) -> None:
    """A forked child samples nothing; ends of all kinds are quick and quiet."""
    code = PROGRAM + (
        "while not argus.status()['stacks']['samples']: pass\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    sum(range(10 ** 6)); assert not argus.status()['enabled']; sys.exit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "argus.finish(); argus.init(run_id='again', rank=0)\n"
        "while not argus.status()['stacks']['samples']: pass\n"
        "print(argus.status()['stacks']['active'])\n"
    )
    done = run_python(code, tmp_path, ARGUS_STACKS="50")
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["True"], "")


def test_signals_reach_the_main_thread_at_once(tmp_path: Path) -> None:
    code = PROGRAM + "print('ready', flush=True)\nimport signal; signal.pause()"
    with program(code, tmp_path) as process:
        wait_for(lambda: training(table_of(tmp_path)), "a sample")
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == -signal.SIGINT or process.returncode == 130


def test_a_failing_sampler_turns_itself_off_and_says_so_once(tmp_path: Path) -> None:
    code = PROGRAM + (
        "def hook(event, args):\n"
        "    if event == 'sys._current_frames': raise RuntimeError('not here')\n"
        "sys.addaudithook(hook)\n"
        "end = time.monotonic() + 20\n"
        "while argus.status()['stacks']['active'] and time.monotonic() < end: pass\n"
        "status = argus.status()\n"
        "print(status['stacks']['active'], status['stacks']['failures'] >= 10, status['enabled'])\n"
    )
    done = run_python(code, tmp_path, ARGUS_STACKS="50")
    assert done.stdout.split() == ["False", "True", "True"], done.stderr
    (line,) = done.stderr.splitlines()
    assert "stack sampling is off" in line
    assert "not here" in line


def test_the_training_thread_is_the_one_that_called_init(tmp_path: Path) -> None:
    code = (
        "import argus, threading, time\n"
        "def train():\n"
        "    argus.init(run_id='r', rank=0)\n"
        "    print('ready', flush=True)\n"
        "    while True: pass\n"
        "threading.Thread(target=train).start()\n"
    )
    with program(code, tmp_path):
        stack = stuck(tmp_path, "other", "train")
    assert stack.functions[0] == "training thread"


def test_collections_of_garbage_are_told_apart(tmp_path: Path) -> None:
    code = PROGRAM + (
        "import gc\n"
        "gc.disable()\n"
        "keep = [[[], []] for _ in range(400_000)]\n"
        "print('ready', flush=True)\n"
        "with argus.iteration():\n"
        "    while True: gc.collect()\n"
    )
    with program(code, tmp_path, ARGUS_STALLS="1"):
        stack = stuck(tmp_path, "gc", "<module>")
    assert stack.functions[-1] == "<string>:<module>"


def test_other_interpreters_are_left_alone(tmp_path: Path) -> None:
    """Where they have locks of their own, looking at their frames kills the process."""
    code = """
import importlib, sys, argus
from argus import _native
new = sys.version_info >= (3, 13)
interpreters = importlib.import_module("_interpreters" if new else "_xxsubinterpreters")
run = interpreters.exec if new else interpreters.run_string
argus.init()
for _ in range(3):
    other = interpreters.create()
    run(other, '''
import time
def recurse(depth):
    return recurse(depth - 1) if depth else [{} for _ in range(50)]
end = time.monotonic() + 0.3
while time.monotonic() < end:
    recurse(30)
''')
    interpreters.destroy(other)
end = _native.monotonic_ns() + 20_000_000_000
while not _native.stacks_status()["samples"] and _native.monotonic_ns() < end:
    pass
status = _native.stacks_status()
print(status["active"], status["samples"] > 0, status["failures"] > 0)
"""
    done = run_python(code, tmp_path, ARGUS_STACKS="50")
    assert done.returncode == 0, done.stderr
    own_locks = sys.version_info >= (3, 12)
    assert done.stdout.split() == ["True", "True", str(own_locks)]
    assert done.stderr.count("other interpreters") == own_locks
