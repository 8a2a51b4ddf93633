"""The extension as it is built: no warnings, one file for all Pythons, and clean under the sanitizers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import argus
from argus import _native
from native_support import environment
from nvtx_support import PRELUDE, build_caller

ROOT = Path(__file__).resolve().parent.parent
NATIVE = ROOT / "native"
STRICT = ["-std=c11", "-Wall", "-Wextra", "-Wshadow", "-Wstrict-prototypes", "-Werror"]
SANITIZED_TESTS = [
    "test_kernel_classes.py",
    "test_native_segment.py",
    "test_native_segment_file.py",
    "test_nvtx.py",
    "test_nvtx_life.py",
    "test_nvtx_rules.py",
    "test_stalls.py",
    "test_tracer_accounting.py",
    "test_tracer_decorators.py",
    "test_tracer_iterations.py",
    "test_tracer_limits.py",
]
SUPPORT = [
    "conftest.py",
    "native_support.py",
    "nvtx_caller.c",
    "nvtx_support.py",
    "stalls_support.py",
    "traces_support.py",
    "data/kernel_names.txt",
]


@pytest.fixture(scope="module")
def compiler() -> str:
    found = shutil.which("gcc")
    if found is None or not NATIVE.is_dir():
        pytest.skip("no gcc, or no native sources next to the tests")
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        pytest.skip("this Python has no headers")
    return found


def build(compiler: str, target: Path, *flags: str) -> None:
    """Builds the extension into a file, warnings being errors."""
    version = f'-DARGUS_VERSION="{_native.__version__}"'
    done = subprocess.run(
        [
            compiler,
            "-shared",
            "-fPIC",
            *STRICT,
            *flags,
            "-DPy_LIMITED_API=0x030A0000",
            version,
            f"-I{sysconfig.get_path('include')}",
            f"-I{NATIVE}",
            *map(str, sorted([*NATIVE.glob("*.c"), *NATIVE.glob("nvtx/*.c")])),
            "-o",
            str(target),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def runtime_library(compiler: str, name: str) -> str:
    done = subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    path = done.stdout.strip()
    if not os.path.isabs(path):
        pytest.skip(f"this compiler has no {name}")
    return os.path.realpath(path)


def test_no_warnings(compiler: str, tmp_path: Path) -> None:
    build(compiler, tmp_path / "_native.so", "-O2", "-fvisibility=hidden")


def test_only_the_stable_interface_is_used() -> None:
    """What is no part of Python's limited interface is not there in every version."""
    readelf = shutil.which("nm")
    if readelf is None:
        pytest.skip("no nm")
    done = subprocess.run([readelf, "-D", str(_native.__file__)], capture_output=True, text=True, check=True)
    names = [line.split() for line in done.stdout.splitlines()]
    python = [name[-1] for name in names if name[-2] == "U" and name[-1].startswith(("Py", "_Py"))]
    assert python
    private = {name for name in python if name.startswith("_Py")}
    # Those that the limited interface's own macros use.
    macros = {"_Py_NoneStruct", "_Py_TrueStruct", "_Py_FalseStruct", "_Py_Dealloc", "_PyObject_New"}
    assert {name for name in private if not name.endswith("_SizeT")} <= macros
    defined = [name[-1] for name in names if name[-2] == "T"]
    assert defined == ["InitializeInjectionNvtx2", "PyInit__native"]


PYTHONS = sorted(Path.home().glob(".pyenv/versions/3.1[0-9]*/bin/python"))


@pytest.mark.parametrize("python", PYTHONS or [Path(sys.executable)], ids=lambda python: python.parts[-3])
def test_one_file_serves_all_pythons(python: Path, tmp_path: Path) -> None:
    if _native.__file__ is None or ".abi3." not in _native.__file__:
        pytest.skip("the extension was not built for the stable interface")
    package = Path(str(argus.__file__)).parent
    code = """
import argus, json
argus.init(run_id="r")
for _ in range(5):
    with argus.iteration(), argus.phase("forward"), argus.collective("all_reduce", bytes=3):
        argus.work(tokens=5)
status = argus.status()
print(status["enabled"], status["iterations"], status["events"])
"""
    variables = {"PYTHONPATH": str(package.parent), "ARGUS_DIR": str(tmp_path), "PATH": os.environ["PATH"]}
    done = subprocess.run(
        [str(python), "-c", code],
        env=variables | {"ARGUS_STALLS": "0"},  # a collection of garbage would be one event more
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.split() == ["True", "5", "10"], done.stderr


def copy_package(target: Path) -> Path:
    """The package without its extension."""
    shutil.copytree(
        Path(str(argus.__file__)).parent,
        target / "argus",
        symlinks=True,
        ignore=shutil.ignore_patterns("*.so", "__pycache__"),
    )
    return target / "argus"


def test_address_and_undefined_behaviour_sanitizers(compiler: str, tmp_path: Path) -> None:
    """The native tests again, with an extension that watches every access."""
    library = runtime_library(compiler, "libasan.so")
    package = copy_package(tmp_path)
    build(
        compiler,
        package / "_native.abi3.so",
        "-O1",
        "-g",
        "-fno-omit-frame-pointer",
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=undefined",
    )
    tests = tmp_path / "tests"
    tests.mkdir()
    for name in (*SANITIZED_TESTS, *SUPPORT):
        (tests / name).parent.mkdir(exist_ok=True)
        shutil.copy(Path(__file__).parent / name, tests / name)
    environ = os.environ | {
        "LD_PRELOAD": library,
        # Python itself does not free everything at its end; bus errors are the tracer's to handle.
        "ASAN_OPTIONS": "detect_leaks=0:handle_sigbus=0:abort_on_error=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONPATH": str(tmp_path),
        "PYTHONMALLOC": "malloc",
    }

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=tests,
            env=environ,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    used = run("-c", "import argus._native; print(argus._native.__file__)")
    assert used.stdout.strip() == str(package / "_native.abi3.so"), used.stderr
    done = run("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", ".")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert "runtime error" not in done.stdout + done.stderr


RACES = """
caller.push(b"forward"); caller.pop()  # NVTX's own first call is not made for this sanitizer
argus.init(run_id="r")
thread = threading.Thread(target=caller.threads, args=(8, 3000, b"forward", b"no rule"))
thread.start()
rounds = 0
while thread.is_alive() or rounds < 300:
    with argus.phase("optimizer"), argus.collective("all_reduce"):
        caller.push(b"iteration"); caller.pop()
    with argus.pause("checkpoint"):
        argus.work(tokens=3)
    if rounds % 10 == 0:
        argus.status(); _native.own_segments()[0].snapshot()
    rounds += 1
thread.join()
argus.finish()
print(_native.nvtx_status()["ranges"] == 24_000 + rounds)
"""


def test_thread_sanitizer(compiler: str, tmp_path: Path) -> None:
    """NVTX's callers don't hold the GIL: they and Python share the accounting by its lock."""
    library = runtime_library(compiler, "libtsan.so")
    package = copy_package(tmp_path)
    extension = package / "_native.abi3.so"
    build(compiler, extension, "-O1", "-g", "-Wno-tsan", "-fsanitize=thread")
    caller = build_caller(tmp_path / "libcaller.so", "-shared", "-fPIC", "-fsanitize=thread")
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + RACES],
        env=environment(tmp_path)
        | {
            "LD_PRELOAD": library,
            "PYTHONPATH": str(tmp_path),
            "CALLER": str(caller),
            "NVTX_INJECTION64_PATH": str(extension),
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if "unexpected memory mapping" in done.stderr:
        pytest.skip("this kernel's address space layout is none for the thread sanitizer")
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", ""), done.stderr[:8000]
