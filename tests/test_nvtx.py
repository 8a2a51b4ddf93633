"""NVTX ranges become phases: real calls through NVTX's header and Python package, the clock moved by hand."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from nvtx_support import Program, patterns


@pytest.fixture
def program(nvtx_caller: Path, tmp_path: Path) -> Program:
    pytest.importorskip("nvtx", reason="the package nvtx is not installed")
    return Program(nvtx_caller, tmp_path)


def test_nested_ranges_of_the_python_package_are_exclusive_phases(program: Program) -> None:
    told = program.tell("""
import nvtx
with traced() as tracer:
    with argus.iteration():
        with nvtx.annotate("forward"):
            tracer.clock.advance(1)
            with nvtx.annotate("something"):
                tracer.clock.advance(10)
                with nvtx.annotate("forward-recv", domain="pipeline"):
                    tracer.clock.advance(100)
                tracer.clock.advance(1000)
        nvtx.push_range("Backward Pass"); tracer.clock.advance(10_000); nvtx.pop_range()
        span = nvtx.start_range("optimizer"); tracer.clock.advance(100_000); nvtx.end_range(span)
    snapshot = tracer.snapshot()
    tell(phases=snapshot.in_iteration(0), kinds={n: p["kind"] for n, p in snapshot.phases.items()},
         source=snapshot.sources["nvtx"], status=_native.nvtx_status())
""")
    assert told["phases"] == {"forward": 1011, "send_recv": 100, "backward": 10_000, "optimizer": 100_000}
    assert told["kinds"] == {"forward": 0, "send_recv": 2, "backward": 0, "optimizer": 0}
    assert (told["source"]["events"], told["source"]["dropped"], told["source"]["enabled"]) == (4, 0, 1)
    assert told["source"]["last_event"] == 1_000_111_111  # the clock began at one second
    status = told["status"]
    assert (status["ranges"], status["ignored"], status["unbalanced"]) == (4, 1, 0)
    assert status["ignored_names"] == ["something"]


def test_ranges_and_phases_of_the_program_mix(program: Program) -> None:
    told = program.tell("""
with traced() as tracer, argus.iteration():
    with argus.phase("forward"):
        tracer.clock.advance(1)
        caller.push(b"loss")
        tracer.clock.advance(10)
        with argus.collective("all_reduce"):
            tracer.clock.advance(100)
        caller.pop()
        tracer.clock.advance(1000)
    snapshot = tracer.snapshot()
    tell(total={name: snapshot.total(name) for name in snapshot.phases})
""")
    assert told["total"] == {"forward": 1001, "loss": 10, "all_reduce": 100}


def test_domains_have_stacks_of_their_own(program: Program) -> None:
    told = program.tell("""
one, two = pointer(caller.domain(b"one")), pointer(caller.domain_wide("two"))
same = caller.domain(b"one") == one.value and caller.domain(b"two") == two.value
with traced() as tracer:
    caller.domain_push(one, b"forward")
    tracer.clock.advance(1)
    caller.domain_push(two, b"backward")
    tracer.clock.advance(10)
    caller.push(b"loss")
    tracer.clock.advance(100)
    caller.domain_pop(one)          # the outermost ends first
    tracer.clock.advance(1000)
    caller.domain_pop(two)
    tracer.clock.advance(10_000)
    caller.pop()
    caller.domain_pop(one)          # one too many
    snapshot = tracer.snapshot()
    tell(same=same, total={name: snapshot.total(name) for name in snapshot.phases},
         status=_native.nvtx_status(), open=_native.status()["open_phases"])
""")
    assert told["same"]
    assert told["total"] == {"forward": 1, "backward": 10, "loss": 11_100}
    assert (told["status"]["unbalanced"], told["open"]) == (1, 0)


def test_a_rule_may_ask_for_a_domain(program: Program, tmp_path: Path) -> None:
    file = patterns(tmp_path / "rules", "ignore @ ^forward$", "inner:host @my?doma* ^forward$", "rest @*2 *")
    told = program.tell(
        """
mine, second = pointer(caller.domain(b"My Domain")), pointer(caller.domain(b"domain2"))
with traced() as tracer:
    for push, pop in ((lambda: caller.push(b"forward"), caller.pop),
                      (lambda: caller.domain_push(mine, b"forward"), lambda: caller.domain_pop(mine)),
                      (lambda: caller.domain_push(second, b"anything"), lambda: caller.domain_pop(second)),
                      (lambda: caller.push(b"anything"), caller.pop)):
        push(); tracer.clock.advance(5); pop()
    snapshot = tracer.snapshot()
    tell(total={name: snapshot.total(name) for name in snapshot.phases}, status=_native.nvtx_status())
""",
        ARGUS_NVTX_PATTERNS=file,
    )
    assert told["total"] == {"inner": 5, "rest": 5}
    assert told["status"]["ignored_names"] == ["anything"]  # what a rule ignores is known


def test_text_of_every_form(program: Program, tmp_path: Path) -> None:
    file = patterns(tmp_path / "rules", "größe ^größe 🐌$", "ff *\ufffd*")
    told = program.tell(
        """
domain = pointer(caller.domain(b"d"))
strings = [pointer(caller.string(domain, "größe 🐌".encode())),
           pointer(caller.string_wide(domain, "größe 🐌")), pointer(caller.string(None, b"forward"))]
with traced() as tracer:
    caller.push("größe 🐌".encode()); tracer.clock.advance(1); caller.pop()
    caller.push_wide("größe 🐌"); tracer.clock.advance(10); caller.pop()
    for string in strings[:2]:
        caller.push_registered(domain, string); tracer.clock.advance(100); caller.domain_pop(domain)
    caller.push_registered(None, strings[2]); tracer.clock.advance(1000); caller.pop()
    caller.end(u64(caller.start_wide("größe 🐌")))
    caller.domain_end(domain, u64(caller.domain_start(domain, "größe 🐌".encode())))
    caller.push_wide("\\ud800")  # no character at all
    caller.pop()
    caller.push(b"\\xff\\xfe"); caller.pop()
    snapshot = tracer.snapshot()
    tell(total={name: snapshot.total(name) for name in snapshot.phases},
         same=strings[0].value == strings[1].value,
         times=snapshot.occurrences("größe"), names=_native.nvtx_status()["ignored_names"])
""",
        ARGUS_NVTX_PATTERNS=file,
    )
    assert told["total"] == {"größe": 211, "forward": 1000, "ff": 0}
    assert told["same"]
    assert told["times"] == 6
    assert len(told["names"]) == 1  # bytes that are no text


def test_starts_and_ends_in_any_order_on_any_thread(program: Program) -> None:
    told = program.tell("""
def elsewhere(id):
    thread = threading.Thread(target=caller.end, args=(u64(id),))
    thread.start(); thread.join()
with traced() as tracer:
    first = caller.start(b"forward"); tracer.clock.advance(1)
    second = caller.start(b"backward"); tracer.clock.advance(10)
    none = caller.start(b"whatever")
    elsewhere(first); tracer.clock.advance(100)
    caller.end(u64(second)); tracer.clock.advance(1000)
    caller.end(u64(none)); caller.end(u64(second)); elsewhere(first)
    snapshot = tracer.snapshot()
    tell(total={name: snapshot.total(name) for name in snapshot.phases}, open=_native.status()["open_phases"],
         none=none, differ=first != second)
""")
    assert told == {"total": {"forward": 1, "backward": 110}, "open": 0, "none": 0, "differ": True}


def test_threads_without_the_gil_lose_nothing(program: Program) -> None:
    """Eight threads of C push ranges while Python opens phases: each occurrence, each nanosecond counts."""
    told = program.tell("""
import time
segment = _native.Segment(None, run_id="r", rank=0)
_native.start(segment)
begin = _native.monotonic_ns()
thread = threading.Thread(target=caller.threads, args=(8, 20_000, b"forward", b"no rule"))
thread.start()
mine = 0
while thread.is_alive() or mine < 1000:
    with argus.phase("optimizer"), argus.phase("backward"):
        caller.push(b"loss"); caller.pop()
    mine += 1
thread.join()
elapsed = _native.monotonic_ns() - begin
snapshot, status = Snapshot(segment.snapshot()), _native.nvtx_status()
_native.stop()
tell(mine=mine, counts={name: snapshot.occurrences(name) for name in snapshot.phases}, status=status,
     total=sum(snapshot.total(name) for name in snapshot.phases), elapsed=elapsed, active=_native.status())
""")
    mine = told["mine"]
    assert told["counts"] == {"forward": 160_000, "optimizer": mine, "backward": mine, "loss": mine}
    assert told["status"]["ranges"] == 160_000 + mine
    assert told["status"]["ignored"] == 160_000
    assert told["status"]["dropped"] == 0
    assert 0 < told["total"] <= told["elapsed"]  # one second never counts twice


def test_a_thread_that_ends_within_a_range_ends_it(program: Program) -> None:
    told = program.tell("""
with traced() as tracer:
    caller.push(b"forward"); tracer.clock.advance(1)
    caller.leave_open(b"backward"); tracer.clock.advance(10)
    caller.pop()
    snapshot = tracer.snapshot()
    tell(total={name: snapshot.total(name) for name in snapshot.phases}, open=_native.status()["open_phases"],
         counted=snapshot.occurrences("backward"))
""")
    assert told == {"total": {"forward": 11, "backward": 0}, "open": 0, "counted": 1}


def test_what_makes_no_sense_does_no_harm(program: Program) -> None:
    told = program.tell("""
with traced() as tracer:
    for _ in range(3):
        caller.pop()
    caller.push_nonsense()
    for _ in range(100):
        caller.pop()
    huge = b"forward" + b"x" * 5_000_000
    caller.push(huge); caller.pop()
    caller.push(b"f" * 511); caller.pop(); caller.push(b""); caller.pop(); caller.push_wide("x" * 100_000)
    caller.pop()
    caller.push(b"forward"); tracer.clock.advance(7); caller.pop()
    snapshot = tracer.snapshot()
    tell(total={name: snapshot.total(name) for name in snapshot.phases}, status=_native.nvtx_status(),
         open=_native.status()["open_phases"])
""")
    assert told["total"] == {"forward": 7}
    assert told["open"] == 0
    assert told["status"]["unbalanced"] == 3 + 100 - 7
    assert all(len(name) < 128 for name in told["status"]["ignored_names"])


def test_deep_nests(program: Program) -> None:
    told = program.tell("""
with traced() as tracer:
    for _ in range(100_000):
        caller.push(b"recursion")
    caller.push(b"forward"); tracer.clock.advance(3); caller.pop()
    for _ in range(100_000):
        caller.pop()
    for _ in range(200):
        caller.push(b"backward")
    tracer.clock.advance(5)
    for _ in range(200):
        caller.pop()
    caller.push(b"loss"); tracer.clock.advance(9); caller.pop()
    snapshot = tracer.snapshot()
    tell(total={name: snapshot.total(name) for name in snapshot.phases}, status=_native.nvtx_status(),
         open=_native.status()["open_phases"], counted=snapshot.occurrences("backward"),
         dropped=snapshot.sources["nvtx"]["dropped"])
""")
    assert told["total"] == {"forward": 3, "backward": 5, "loss": 9}
    assert (told["counted"], told["dropped"], told["open"]) == (64, 200 - 64, 0)
    assert told["status"]["unbalanced"] == 0
    assert told["status"]["ignored"] == 100_000


def test_a_forked_child_traces_nothing(program: Program) -> None:
    # Without the sampler's thread: a sanitizer's own locks don't survive a fork beside one.
    code = """
argus.init(run_id="r")
caller.push(b"forward")
status = caller.child(b"backward", 3000)
caller.pop()
snapshot = Snapshot(_native.own_segments()[0].snapshot())
tell(status=status, counts={name: snapshot.occurrences(name) for name in snapshot.phases})
"""
    told = program.tell(code, ARGUS_STACKS="0")
    assert told == {"status": 0, "counts": {"forward": 1}}


def test_more_phases_than_there_is_room_for(program: Program, tmp_path: Path) -> None:
    file = patterns(tmp_path / "rules", *(f"phase{i}:host ^range{i}$" for i in range(40)))
    told = program.tell(
        """
with traced() as tracer:
    for i in range(40):
        caller.push(f"range{i}".encode()); tracer.clock.advance(1); caller.pop()
    snapshot = tracer.snapshot()
    tell(phases=len(snapshot.phases), other=sum(snapshot.other["seconds"]["bucket"]),
         dropped=snapshot.sources["phases"]["dropped"])
""",
        ARGUS_NVTX_PATTERNS=file,
    )
    assert (told["phases"], told["other"]) == (32, 8)
    assert told["dropped"] >= 8


def test_a_gpu_makes_what_only_the_host_sees_mixed(program: Program, tmp_path: Path) -> None:
    """ARGUS's own rules don't accuse by launch times; the user's own say what the user knows."""
    driver = build_driver(tmp_path)
    file = patterns(tmp_path / "rules", "mine:compute ^my range$")
    told = program.tell(
        f"""
with traced() as tracer:
    caller.push(b"loss"); caller.pop()
    ctypes.CDLL({str(driver)!r})
    for name in (b"forward", b"my range", b"batch-generator", b"loss"):
        caller.push(name); caller.pop()
    tell(**{{name: phase["kind"] for name, phase in tracer.snapshot().phases.items()}})
""",
        ARGUS_NVTX_PATTERNS=file,
        LD_LIBRARY_PATH=str(driver.parent),
    )
    assert told == {"loss": 0, "forward": 3, "mine": 0, "data_loading": 1}


def build_driver(folder: Path) -> Path:
    """A library that is called like CUDA's driver, and does nothing."""
    target = folder / "libcuda.so.1"
    source = folder / "nothing.c"
    source.write_text("int nothing;\n")
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", str(source), "-o", str(target)], check=True
    )
    return target
