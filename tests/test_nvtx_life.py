"""NVTX ranges as iterations and pauses, and the library's life: too early, too late, unwanted, not there."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from argus import _native
from argus.nvtx.injection import library, trouble
from native_support import environment, segment_files
from nvtx_support import PRELUDE, Program, build_caller, patterns


@pytest.fixture
def program(nvtx_caller: Path, tmp_path: Path) -> Program:
    pytest.importorskip("nvtx", reason="the package nvtx is not installed")
    return Program(nvtx_caller, tmp_path)


# ---- iterations ----


def test_a_range_is_an_iteration_and_its_name_may_hold_the_number(program: Program) -> None:
    told = program.tell("""
with traced() as tracer:
    for name in (b"iteration 17", b"Iteration_18, op_id = 4", b"iteration[19,23)", b"train_step"):
        caller.push(name)
        tracer.clock.advance(10)
        caller.push(b"forward"); tracer.clock.advance(5); caller.pop()
        caller.push(b"iteration_4_micro_2"); caller.pop()   # a part of it
        caller.pop()
        caller.push(b"dataloader"); tracer.clock.advance(2); caller.pop()
    slots = tracer.snapshot().iterations
    tell(slots=[(slot["iteration"], slot["wall"], slot["busy"]) for slot in slots])
""")
    assert told["slots"] == [[17, 15, 5], [18, 17, 7], [19, 17, 7], [20, 17, 7]]


def test_a_last_phase_ends_the_iteration_where_the_next_phase_begins(program: Program) -> None:
    told = program.tell("""
with traced() as tracer:
    for step in range(4):
        caller.push(b"dataloader"); tracer.clock.advance(1); caller.pop()
        for _ in range(2):
            caller.push(b"forward"); tracer.clock.advance(10); caller.pop()
            caller.push(b"backward"); tracer.clock.advance(100); caller.pop()
        for optimizer in (b"Optimizer.step#AdamW.step", b"optimizer"):
            caller.push(optimizer); tracer.clock.advance(1000); caller.pop()
        tracer.clock.advance(10_000)
    slots = tracer.snapshot().iterations
    tell(slots=[(slot["iteration"], slot["wall"], slot["busy"]) for slot in slots])
""")
    # The first mark only begins one, and the last is not over yet.
    assert told["slots"] == [[0, 12_221, 2221], [1, 12_221, 2221]]


def test_marks_end_iterations(program: Program) -> None:
    told = program.tell("""
with traced() as tracer:
    for step in range(3):
        caller.mark(b"iteration"); caller.mark(b"something"); caller.mark(b"forward")
        tracer.clock.advance(50)
    caller.domain_mark(None, b"iteration")
    slots = tracer.snapshot().iterations
    tell(slots=[slot["wall"] for slot in slots], status=_native.nvtx_status())
""")
    assert told["slots"] == [50, 50, 50]
    assert (told["status"]["ranges"], told["status"]["ignored"]) == (4, 6)


def test_iterations_of_the_program_itself_come_first(program: Program) -> None:
    told = program.tell("""
with traced() as tracer:
    for step in range(3):
        with argus.iteration(step):
            caller.push(b"forward"); tracer.clock.advance(10); caller.pop()
            caller.push(b"optimizer"); tracer.clock.advance(10); caller.pop()
        caller.push(b"iteration 7"); tracer.clock.advance(1); caller.pop()
        caller.mark(b"iteration")
    slots = tracer.snapshot().iterations
    tell(slots=[(slot["iteration"], slot["wall"]) for slot in slots])
""")
    assert told["slots"] == [[0, 20], [1, 21], [2, 21]]


def test_pauses(program: Program, tmp_path: Path) -> None:
    file = patterns(tmp_path / "rules", "pause:my_pause ^stop$")
    told = program.tell(
        """
kinds = []
with traced() as tracer:
    for name in (b"stop", b"Evaluating"):
        caller.push(b"iteration"); tracer.clock.advance(10)
        caller.push(name); tracer.clock.advance(1000)
        kind = tracer.snapshot().state["pause_kind"]
        caller.pop(); tracer.clock.advance(1); caller.pop()
        kinds.append(kind)
    tell(slots=[slot["wall"] for slot in tracer.snapshot().iterations], kinds=kinds)
""",
        ARGUS_NVTX_PATTERNS=file,
    )
    assert told == {"slots": [11, 11], "kinds": ["my_pause", "evaluation"]}


def test_python_hears_of_the_first_iterations(program: Program) -> None:
    """As it does of argus.iteration(): Megatron's coordinates may be known only then."""
    told = program.tell("""
import time
heard = []
with traced() as tracer:
    _native.configure(iterated=heard.append)
    for step in range(20):
        caller.push(b"iteration"); tracer.clock.advance(10); caller.pop()
        deadline = time.monotonic() + 10
        while step < 8 and len(heard) <= step and time.monotonic() < deadline:
            pass
tell(heard=heard)
""")
    assert told["heard"] == list(range(1, 9))


def test_a_lost_segment_turns_tracing_off(program: Program) -> None:
    done = program.run(
        PRELUDE
        + """
import time
argus.init(run_id="r")
os.truncate(argus.status()["segment"], 0)
deadline = time.monotonic() + 20
while argus.status()["enabled"] and time.monotonic() < deadline:
    caller.push(b"iteration"); caller.push(b"forward"); caller.pop(); caller.pop()
tell(**{"reason": argus.status()["reason"]})
"""
    )
    assert done.returncode == 0, done.stderr
    assert "truncated" in done.stdout
    assert done.stderr.count("tracing is off: the segment file was truncated by another program") == 1


# ---- life ----


def test_ranges_before_and_after_tracing(program: Program) -> None:
    told = program.tell("""
caller.push(b"forward")                       # before: not traced, whenever it ends
with traced() as tracer:
    caller.push(b"backward"); tracer.clock.advance(10); caller.pop()
    caller.pop()
    caller.push(b"optimizer"); span = caller.start(b"loss")
    first = {name: tracer.snapshot().total(name) for name in tracer.snapshot().phases}
caller.push(b"forward"); caller.pop()         # between
with traced() as tracer:
    caller.pop(); caller.end(u64(span))       # belong to the one before
    caller.push(b"forward"); tracer.clock.advance(3); caller.pop()
    second = {name: tracer.snapshot().total(name) for name in tracer.snapshot().phases}
caller.push(b"forward"); caller.pop()
tell(first=first, second=second)
""")
    assert told["first"] == {"backward": 10, "optimizer": 0, "loss": 0}
    assert told["second"] == {"forward": 3}


def test_a_program_without_argus_is_told_once(program: Program) -> None:
    code = (
        "import nvtx\nfor i in range({}):\n    with nvtx.annotate('forward'): pass\n"
        "import sys; print('argus' in sys.modules)"
    )
    few, many = program.run(code.format(100)), program.run(code.format(5000))
    assert (few.returncode, few.stdout, few.stderr) == (0, "False\n", "")
    assert (many.returncode, many.stdout) == (0, "False\n")
    assert many.stderr == (
        "argus: NVTX ranges come, but argus.init() has not been called; nothing is traced until the program "
        "calls it, or is started with ARGUS_NVTX_INIT=1\n"
    )
    assert segment_files(program.base) == []


def test_a_program_without_argus_may_be_traced_all_the_same(program: Program) -> None:
    done = program.run(
        """
import nvtx, sys, time
deadline = time.monotonic() + 20
while "argus" not in sys.modules and time.monotonic() < deadline:
    with nvtx.annotate("warm up"): pass
for step in range(5):
    with nvtx.annotate(f"iteration {step}"), nvtx.annotate("forward"): pass
import argus
print(argus.status()["iterations"], argus.status()["rank"], argus.status()["nvtx"]["ranges"])
""",
        ARGUS_NVTX_INIT="1",
        RANK="3",
        LOCAL_RANK="1",
        WORLD_SIZE="8",
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ["5", "3", "10"]


def test_a_wish_that_python_can_not_fulfil(program: Program, tmp_path: Path) -> None:
    (tmp_path / "argus.py").write_text("raise ImportError('half a copy')\n")
    done = program.run(
        "import nvtx\nfor i in range(100):\n    with nvtx.annotate('forward'): pass\nprint('trained')",
        ARGUS_NVTX_INIT="1",
        PYTHONPATH=str(tmp_path),
    )
    assert (done.returncode, done.stdout) == (0, "trained\n")
    assert done.stderr == (
        "argus: tracing is off: ARGUS_NVTX_INIT is set, but `import argus` failed; install argus-gpu for "
        "this Python\n"
    )


def test_disabled_it_takes_no_calls(program: Program) -> None:
    told = program.tell(
        "argus.init()\ncaller.push(b'forward')\ntell(status=_native.nvtx_status())",
        ARGUS_DISABLE="1",
        ARGUS_NVTX_INIT="1",
    )
    assert told == {"status": None}


def test_set_too_late_it_says_so(program: Program) -> None:
    done = program.run(
        PRELUDE
        + f"""
os.environ["NVTX_INJECTION64_PATH"] = {str(library())!r}
argus.init(run_id="r")
for _ in range(3):
    caller.push(b"forward"); caller.pop()
tell(status=_native.nvtx_status(), enabled=argus.status()["enabled"])
""",
        NVTX_INJECTION64_PATH="",
    )
    assert done.stdout == '{"status": null, "enabled": true}\n'
    assert done.stderr == (
        "argus: NVTX ranges are not traced: NVTX_INJECTION64_PATH was set after argus was imported; set it "
        "before the program starts\n"
    )


def test_another_copy_is_noticed(program: Program, tmp_path: Path) -> None:
    copy = tmp_path / "argus" / library().name
    copy.parent.mkdir()
    shutil.copy(library(), copy)
    done = program.run(
        PRELUDE + "argus.init(run_id='r')\ncaller.push(b'forward')\ncaller.pop()",
        NVTX_INJECTION64_PATH=str(copy),
    )
    assert done.returncode == 0
    assert done.stderr == (
        f"argus: NVTX ranges are not traced: NVTX_INJECTION64_PATH names {copy}, but this program imported "
        f"another copy of argus; set it to {library()}\n"
    )
    assert "which is not there" in trouble({"NVTX_INJECTION64_PATH": "/nowhere/argus/_native.abi3.so"})
    other = tmp_path / "libToolsInjection64.so"  # another tool's
    assert "which is not there" in trouble({"NVTX_INJECTION64_PATH": str(other)})
    other.touch()
    assert trouble({"NVTX_INJECTION64_PATH": str(other)}) == ""
    assert "the library for kernels" in trouble({"NVTX_INJECTION64_PATH": "libargus_kernels.so"})
    assert trouble({}) == ""


@pytest.mark.parametrize("early", [True, False])
def test_a_wrong_line_of_the_rules_is_said_once(program: Program, tmp_path: Path, early: bool) -> None:
    file = patterns(tmp_path / "rules", "iteration ^loop$", "mlp:quick ^mlp$")
    begin = "caller.push(b'first'); caller.pop()\n" if early else ""
    done = program.run(
        PRELUDE
        + begin
        + """
argus.init(run_id="r")
for _ in range(10):
    caller.push(b"loop"); caller.push(b"mlp"); caller.pop(); caller.pop()
tell(iterations=argus.status()["iterations"])
""",
        ARGUS_NVTX_PATTERNS=file,
    )
    assert done.stdout == '{"iterations": 10}\n'
    assert done.stderr == (
        f"argus: {file}:2: a phase's kind is compute, host, communication or mixed: 'mlp:quick'\n"
    )


def test_a_rules_file_of_any_bytes_is_complained_of(program: Program, tmp_path: Path) -> None:
    file = tmp_path / "rules"
    file.write_bytes(b"\xf3\xff: forward\n")
    code = """
import sys
sys.stderr = open(os.devnull, "w")
argus.init(run_id="r")
caller.push(b"\\xf3\\xff no rule"); caller.pop()
tell(**argus.status()["nvtx"], enabled=argus.status()["enabled"])
"""
    told = program.tell(code, ARGUS_NVTX_PATTERNS=str(file))
    assert told["enabled"]
    assert "\ufffd" in told["message"]
    assert told["message"].startswith(f"{file}:1: ")


def test_two_copies_of_nvtx_in_one_process(program: Program) -> None:
    told = program.tell("""
import nvtx
with traced() as tracer:
    with nvtx.annotate("forward"):
        tracer.clock.advance(1)
        caller.push(b"backward"); tracer.clock.advance(10); caller.pop()
    snapshot = tracer.snapshot()
    tell(**{name: snapshot.total(name) for name in snapshot.phases})
""")
    assert told == {"forward": 1, "backward": 10}


def test_a_program_that_is_not_python_runs_as_ever(tmp_path: Path) -> None:
    binary = build_caller(tmp_path / "program", "-DPROGRAM")
    env = environment(tmp_path, NVTX_INJECTION64_PATH=str(library()))
    done = subprocess.run([str(binary)], env=env, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_this_process_was_not_injected() -> None:
    assert _native.nvtx_status() is None
