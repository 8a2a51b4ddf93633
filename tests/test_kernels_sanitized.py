"""The kernel tracer under the sanitizers and valgrind, through the stand-in."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from kernels_support import build, run

SCENARIOS = [
    ("attribution", "6", "late"),
    ("count", "4", "50000", "1"),
    ("count", "4", "50000", "0"),
    ("exhaust",),
    ("stamps",),
    ("clock",),
    ("names",),
    ("wrap",),
    ("deaf",),
    ("broken",),
    ("capture",),
    ("profiler", "1"),
    ("forked",),
    ("injected",),
    ("again",),
    ("contexts",),
    ("paused",),
    ("own",),
    ("overflow",),
    ("result", "999"),
]


def _built(*flags: str) -> tuple[str, ...]:
    """The flags, where this compiler has the sanitizer."""
    probe = ["gcc", *flags, "-x", "c", "-", "-o", "/dev/null"]
    if shutil.which("gcc") is None or subprocess.run(probe, input=b"int main(void) { return 0; }").returncode:
        pytest.skip(f"this compiler does not have {flags[0]}")
    return flags


@pytest.mark.parametrize("scenario", SCENARIOS, ids=" ".join)
def test_no_data_race(scenario: tuple[str, ...]) -> None:
    folder = build(*_built("-fsanitize=thread"), "-Wno-tsan")
    report = run(folder, *scenario, TSAN_OPTIONS="exitcode=66")
    assert report["stderr"] == ""


@pytest.mark.parametrize("scenario", SCENARIOS, ids=" ".join)
def test_no_bad_memory_access_and_nothing_undefined(scenario: tuple[str, ...]) -> None:
    folder = build(*_built("-fsanitize=address,undefined"), "-fno-sanitize-recover=undefined")
    report = run(folder, *scenario, ASAN_OPTIONS="detect_leaks=0")
    assert report["stderr"] == ""


@pytest.mark.parametrize(
    "scenario", [("attribution", "4"), ("stamps",), ("names",), ("again",), ("forked",)], ids=" ".join
)
def test_valgrind_finds_nothing(scenario: tuple[str, ...]) -> None:
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        pytest.skip("no valgrind")
    run(build(), *scenario, before=(valgrind, "-q", "--error-exitcode=66", "--leak-check=full"))
