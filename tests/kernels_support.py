"""Builds and runs the driver of ``tests/standin/``: the kernel library in a process with a stand-in CUPTI."""

from __future__ import annotations

import atexit
import functools
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
STANDIN = ROOT / "tests" / "standin"
NATIVE = ROOT / "native"

OUTSIDE = "33"
"""Launched outside of every phase; and of gpu_idle in the histograms."""

_C = ["gcc", "-std=c11", "-O2", "-g", "-fPIC", "-Wall", "-Wextra", "-Werror"]
_CXX = ["g++", "-std=c++17", "-O2", "-g", "-fno-exceptions", "-fno-rtti", "-Wall", "-Wextra", "-Wshadow"]
_CXX += ["-Wconversion", "-Werror"]


def _run(*command: str | Path) -> None:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


@functools.cache
def build(*flags: str, old: bool = False) -> Path:
    """The folder of the driver and its two stand-ins; old: a CUPTI from before 12.6.

    Warnings are errors.
    """
    if shutil.which("gcc") is None or shutil.which("g++") is None or not NATIVE.is_dir():
        pytest.skip("no gcc and g++, or no native sources next to the tests")
    out = Path(tempfile.mkdtemp(prefix="argus-standin-"))
    atexit.register(shutil.rmtree, out, ignore_errors=True)
    shared = [*_C, *flags, "-shared", "-o"]
    variant = ["-DSTANDIN_OLD"] if old else []
    _run(*shared, out / "libcupti.so", "-Wl,-soname,libcupti.so", *variant, STANDIN / "cupti.c", "-lpthread")
    _run(*shared, out / "libcuda.so.1", "-Wl,-soname,libcuda.so.1", "-Wl,-rpath,$ORIGIN",
         STANDIN / "cuda.c", f"-L{out}", "-l:libcupti.so")  # fmt: skip
    shared_c = [NATIVE / name for name in ("flight.c", "histogram.c", "patterns.c")]
    c_sources = [*shared_c, *sorted(NATIVE.glob("kernel_*.c"))]
    objects = []
    for source in c_sources:
        objects.append(out / f"{source.stem}.c.o")
        _run(*_C, *flags, "-c", source, "-o", objects[-1])
    cxx_sources = [*sorted((NATIVE / "kernels").glob("*.cpp")), *sorted(STANDIN.glob("*.cpp"))]
    _run(*_CXX, *flags, "-o", out / "driver", *cxx_sources, *objects, f"-L{out}", "-l:libcupti.so",
         "-Wl,-rpath,$ORIGIN", "-lpthread", "-ldl", "-lm")  # fmt: skip
    return out


def run(folder: Path, *arguments: str, before: tuple[str, ...] = (), code: int = 0, **environ: str) -> Any:
    """What the driver reports about a scenario.

    Args:
        before: A program that runs the driver, such as valgrind.
        code: The exit status to expect.
        environ: Variables on top of the environment.
    """
    variables = {name: value for name, value in os.environ.items() if not name.startswith("ARGUS_")}
    variables |= {"STANDIN_CUDA": str(folder / "libcuda.so.1"), **environ}
    done = subprocess.run(
        [*before, str(folder / "driver"), *arguments],
        env=variables, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == code, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    report = json.loads(done.stdout)
    report["stderr"] = done.stderr
    return report
