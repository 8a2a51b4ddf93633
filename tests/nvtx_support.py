"""Programs that use NVTX, for its tests: Python's ``nvtx`` package, and C by the real header."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any

import pytest

from argus.nvtx.injection import library
from native_support import environment

TESTS = Path(__file__).resolve().parent
SOURCE = TESTS / "nvtx_caller.c"

PRELUDE = f"""
import ctypes, json, os, sys, threading
sys.path.insert(0, {str(TESTS)!r})
import argus
from argus import _native
from native_support import Snapshot, traced
caller = ctypes.CDLL(os.environ["CALLER"])
for name in ("start", "start_wide", "domain_start"):
    getattr(caller, name).restype = ctypes.c_uint64
for name in ("domain", "domain_wide", "string", "string_wide"):
    getattr(caller, name).restype = ctypes.c_void_p
for name in ("pair_ns", "unique_ns"):
    getattr(caller, name).restype = ctypes.c_double
pointer, u64 = ctypes.c_void_p, ctypes.c_uint64
def tell(**what):
    print(json.dumps(what))
"""


def include() -> Path:
    """The folder with ``nvtx3/nvToolsExt.h``; where no installed package has it the test is skipped."""
    for package in ("nvidia-nvtx", "nvidia-nvtx-cu12", "nvidia-nvtx-cu11"):
        try:
            found = files(package) or []
        except PackageNotFoundError:
            continue
        for file in found:
            if file.name == "nvToolsExt.h" and file.parent.name == "nvtx3":
                return Path(str(file.locate())).parent.parent
    pytest.skip("no NVTX headers: install nvidia-nvtx")


def build_caller(target: Path, *flags: str) -> Path:
    """Compiles ``nvtx_caller.c``."""
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("no gcc")
    command = [compiler, "-O2", "-g", f"-I{include()}", *flags, str(SOURCE), "-o", str(target)]
    subprocess.run([*command, "-ldl", "-lpthread"], check=True, timeout=120)
    return target


class Program:
    """Runs Python programs whose NVTX calls come to ARGUS."""

    def __init__(self, caller: Path, base: Path) -> None:
        self.caller = caller
        self.base = base

    def run(self, code: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Runs it to its end; ``NVTX_INJECTION64_PATH=""``: without ARGUS."""
        env = environment(self.base, CALLER=str(self.caller), NVTX_INJECTION64_PATH=str(library())) | more
        return subprocess.run(
            [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120, check=False
        )

    def tell(self, code: str, **more: str) -> dict[str, Any]:
        """What a program that begins with ``PRELUDE`` tells, when it ends well and says nothing else."""
        done = self.run(PRELUDE + code, **more)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr[-4000:]
        told: dict[str, Any] = json.loads(done.stdout)
        return told


def patterns(path: Path, *lines: str) -> str:
    """A file of rules."""
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return os.fspath(path)
