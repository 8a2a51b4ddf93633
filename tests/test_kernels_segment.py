"""From kernels in a traced process to what the exporter says of them."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from argus import _native
from argus.segment import layout
from argus.segment.reader import SegmentError, read
from argus.segment.sections import directory
from argus.tracer import kernels
from kernels_support import build

MS = 1_000_000

# A job of twelve iterations of 5 ms on a GPU that computes 2 ms for forward, 1 ms for backward (launched in
# another lane), communicates 1 ms for backward's gradients, and is idle for 1 ms.  The host's clock knows
# nothing of that: launching takes microseconds, and what it waits for is the device.
JOB = """
import ctypes, json, os, sys, time
if os.environ["STANDIN"] != "none":
    ctypes.CDLL(os.environ["STANDIN_CUDA"], ctypes.RTLD_GLOBAL)
    standin = ctypes.CDLL(os.environ["STANDIN_CUPTI"], ctypes.RTLD_GLOBAL)
    standin.standin_launch.argtypes = [ctypes.c_uint, ctypes.c_uint32, ctypes.c_char_p, ctypes.c_uint32,
                                       ctypes.c_uint64, ctypes.c_uint64]
import argus
from argus import _native
NAMES = [b"sm90_xmma_gemm_bf16_tn", b"flash_bwd_dq_dk_dv_loop_kernel", b"ncclDevKernel_ReduceScatter_Sum"]

def launch(lane, name, begin, start, end):
    if os.environ["STANDIN"] != "none":
        standin.standin_launch(lane, 10, NAMES[name], 7 + name, begin + start * 10**6, begin + end * 10**6)

argus.init(run_id="kernels", rank=0)
for i in range(12):
    begin = time.monotonic_ns()
    with argus.iteration():
        with argus.phase("data_loading"):
            pass
        with argus.phase("forward"):
            launch(0, 0, begin, 0, 2)
        with argus.phase("backward", kind="mixed"):
            launch(1, 1, begin, 2, 3)
            launch(1, 2, begin, 3, 4)
        time.sleep(max(begin + 5_000_000 - time.monotonic_ns(), 0) / 1e9)
if os.environ["STANDIN"] != "none":
    standin.standin_fill()
deadline = time.monotonic() + 20
[segment] = _native.own_segments()
from argus.exporter.registry import Registry
from argus.exporter.sources import MemorySource
from argus.exporter.exposition import text
from argus.segment.reader import read
while os.environ["STANDIN"] == "on" and time.monotonic() < deadline:
    state = read(segment.snapshot(), _native.monotonic_ns())
    classes = {each.name: each.seconds.count for each in state.device.classes} if state.device else {}
    if state.device and state.device.iterations >= 12 and classes.get("attention", 0) >= 12:
        break
    time.sleep(0.01)
page = text.encode(Registry(MemorySource([segment])).collect()).decode()
print(json.dumps({"status": argus.status(), "page": page, "segment": segment.snapshot().hex()}))
argus.finish()
"""


def job(tmp_path: Path, standin: str = "on", **environ: str) -> dict[str, Any]:
    folder = build()
    variables = {name: value for name, value in os.environ.items() if not name.startswith("ARGUS_")} | {
        "ARGUS_DIR": str(tmp_path),
        "STANDIN": standin,
        "STANDIN_CUPTI": str(folder / "libcupti.so"),
        "STANDIN_CUDA": str(folder / "libcuda.so.1"),
        **environ,
    }
    done = subprocess.run(
        [sys.executable, "-c", JOB], env=variables, capture_output=True, text=True, errors="replace",
        timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    result["stderr"] = done.stderr
    result["series"] = {
        name: float(value)
        for name, _, value in (line.rpartition(" ") for line in result["page"].splitlines() if line[0] != "#")
    }
    return result


def value(result: dict[str, Any], metric: str, **labels: str) -> float:
    own = "".join(f',{name}="{text}"' for name, text in labels.items())
    found: float = result["series"][f'{metric}{{run_id="kernels",role="pp0",rank="0"{own}}}']
    return found


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return job(tmp_path_factory.mktemp("traced"), ARGUS_KERNELS="1")


def test_compute_phases_carry_device_seconds(traced: dict[str, Any]) -> None:
    for phase, seconds in (("forward", 0.002), ("backward", 0.001)):
        for quantile in ("0.0", "0.5", "1.0"):
            got = value(traced, "argus_window_phase_seconds", phase=phase, kind="compute", quantile=quantile)
            assert got == pytest.approx(seconds, rel=0.02)
        count = value(traced, "argus_phase_seconds_count", phase=phase, kind="compute")
        total = value(traced, "argus_phase_seconds_sum", phase=phase, kind="compute")
        assert total == pytest.approx(count * seconds, rel=0.02)
        assert count == 11  # the first iteration began before the GPU was in use
    # With device time the waiting is apart: nothing of the mixed phase is left.
    assert 'kind="mixed"' not in traced["page"]


def test_communication_and_idleness_are_apart(traced: dict[str, Any]) -> None:
    communication = value(
        traced, "argus_window_phase_seconds", phase="backward", kind="communication", quantile="0.5"
    )
    assert communication == pytest.approx(0.001, rel=0.02)
    idle = value(traced, "argus_window_phase_seconds", phase="gpu_idle", kind="host", quantile="0.0")
    wall = value(traced, "argus_window_iteration_seconds", quantile="0.0")
    busy = value(traced, "argus_window_busy_seconds", quantile="0.0")
    assert 0.0005 < idle < 0.0025
    assert busy == pytest.approx(wall - 0.001, rel=0.05)


def test_kernels_by_class(traced: dict[str, Any]) -> None:
    for name, seconds in (("gemm", 0.002), ("attention", 0.001), ("communication_reduce_scatter", 0.001)):
        assert value(traced, "argus_kernel_seconds_count", kernel_class=name) == 12
        total = value(traced, "argus_kernel_seconds_sum", kernel_class=name)
        assert total == pytest.approx(12 * seconds, rel=0.01)
        for quantile in ("0.5", "0.9", "0.99"):
            got = value(traced, "argus_window_kernel_seconds", kernel_class=name, quantile=quantile)
            assert got == pytest.approx(seconds, rel=0.1)  # a bucket is 9 % wide
    assert value(traced, "argus_kernel_attribution", attribution="memset") == 1


def test_the_tracer_tells_about_itself(traced: dict[str, Any]) -> None:
    assert traced["stderr"] == ""
    assert traced["status"]["kernels"]["state"] == "on"
    assert traced["status"]["kernels"]["attribution"] == "memset"
    assert value(traced, "argus_tracer_enabled", source="kernels") == 1
    assert value(traced, "argus_tracer_events_total", source="kernels") == 36
    assert value(traced, "argus_tracer_dropped_total", source="kernels") == 0
    assert value(traced, "argus_tracer_gap_seconds_total", source="kernels") == 0
    assert 0 < value(traced, "argus_tracer_memory_bytes", source="kernels") <= 12 << 20
    assert value(traced, "argus_tracer_cost_seconds_total", source="kernels") < 0.1


def test_promtool_accepts_the_page(traced: dict[str, Any], promtool: str) -> None:
    done = subprocess.run(
        [promtool, "check", "metrics"], input=traced["page"].encode(), capture_output=True, timeout=60
    )
    assert (done.returncode, done.stderr.decode()) == (0, "")


def test_without_attribution_compute_accuses_nobody(tmp_path: Path) -> None:
    result = job(tmp_path, ARGUS_KERNELS="1", ARGUS_KERNEL_ATTRIBUTION="none")
    assert 'phase="forward",kind="mixed"' in result["page"]
    assert 'kind="compute"' not in result["page"]
    assert value(result, "argus_kernel_attribution", attribution="none") == 1
    assert value(result, "argus_window_phase_seconds", phase="gpu_idle", kind="host", quantile="0.0") > 0.0005


def test_off_is_off(tmp_path: Path) -> None:
    result = job(tmp_path, "loaded", ARGUS_KERNELS="0")
    assert result["status"]["kernels"] is None
    assert 'source="kernels"' not in result["page"]
    assert 'phase="forward",kind="compute"' in result["page"]
    assert result["stderr"] == ""


def test_no_cupti_is_said_once(tmp_path: Path) -> None:
    result = job(tmp_path, "none", ARGUS_KERNELS="1", ARGUS_CUPTI="/nonexistent/libcupti.so")
    assert result["stderr"].count("kernel tracing is off") == 1
    assert "ARGUS_CUPTI names can't be loaded" in result["stderr"]
    assert result["status"]["enabled"]
    assert 'phase="forward",kind="compute"' in result["page"]


@pytest.mark.parametrize("damage", ["cut", "fifo", "directory", "text"])
def test_a_cupti_that_is_no_library_harms_nobody(tmp_path: Path, damage: str) -> None:
    # The loader itself would be killed by the first, and wait for the second for good.
    path = tmp_path / "libcupti.so"
    if damage == "cut":
        path.write_bytes((build() / "libcupti.so").read_bytes()[:3000])
    elif damage == "fifo":
        os.mkfifo(path)
    elif damage == "directory":
        path.mkdir()
    else:
        path.write_text("no library")
    result = job(tmp_path, "none", ARGUS_KERNELS="1", ARGUS_CUPTI=str(path))
    assert "kernel tracing is off" in result["stderr"]
    assert result["status"]["enabled"]


def test_odd_entries_of_the_search_path_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "nvidia" / "cuda_cupti" / "lib" / "libcupti.so.12"
    copy.parent.mkdir(parents=True)
    copy.touch()
    asked: list[object] = []
    monkeypatch.setattr(_native, "kernels_start", lambda library, cupti: asked.append(cupti))
    monkeypatch.setattr(sys, "path", [5, b"x", None, tmp_path])
    assert kernels.start({"ARGUS_KERNELS": "1"}) is None
    assert asked == [str(copy)]


def test_a_pattern_file_of_any_bytes_leaves_the_status_readable(tmp_path: Path) -> None:
    path = tmp_path / "patterns"
    path.write_bytes(b"\xf3\xff gemm\n")
    result = job(tmp_path, "loaded", ARGUS_KERNELS="1", ARGUS_KERNEL_PATTERNS=str(path))
    assert "no such class" in result["status"]["kernels"]["message"]


def test_when_kernels_are_told_no_more_compute_is_unknown(traced: dict[str, Any]) -> None:
    # Another profiler has CUPTI: the host's iterations go on, the device's do not.
    snapshot = bytearray.fromhex(traced["segment"])
    device = directory(snapshot)[1][layout.SECTIONS["DEVICE"]].copy()
    place = bytes(snapshot).index(device.tobytes())
    device["iterations"] = 1
    snapshot[place : place + device.nbytes] = device.tobytes()
    state = read(bytes(snapshot), _native.monotonic_ns() + 60 * 1000 * MS)
    window = state.window()
    assert window is not None
    assert window.busy is None
    assert {phase.name for phase, _ in window.phases} == {"data_loading"}
    assert window.wall.typical >= 0.005


def test_cudas_own_compilation_counts_where_the_host_has_compilations_too(traced: dict[str, Any]) -> None:
    # CUDA compiled for 3 ms in each iteration; a host phase of that name, of microseconds, is there already.
    snapshot = bytearray.fromhex(traced["segment"].replace(b"data_loading".hex(), b"jit_compile\0".hex()))
    ring = directory(snapshot)[1][layout.SECTIONS["DEVICE_ITERATIONS"]].copy()
    place = bytes(snapshot).index(ring.tobytes())
    ring["jit"] = 3 * MS
    snapshot[place : place + ring.nbytes] = ring.tobytes()
    window = read(bytes(snapshot), _native.monotonic_ns()).window()
    assert window is not None
    (seconds,) = (
        seconds for phase, seconds in window.phases if (phase.name, phase.kind) == ("jit_compile", "host")
    )
    assert (seconds.fastest, seconds.typical) == (0.003, 0.003)


def test_damaged_device_sections_harm_nobody(traced: dict[str, Any]) -> None:
    snapshot = bytes.fromhex(traced["segment"])
    header = read(snapshot, _native.monotonic_ns())
    assert header.device is not None
    begin = snapshot.index(b"gemm\0")  # the first record of the kernels' section
    seed = random.Random(3)
    for _ in range(400):
        damaged = bytearray(snapshot)
        for _ in range(seed.randrange(1, 40)):
            damaged[seed.randrange(begin, len(damaged))] ^= 1 << seed.randrange(8)
        try:
            state = read(bytes(damaged), _native.monotonic_ns())
        except SegmentError:
            continue
        window = state.window()
        assert window is None or window.iterations >= 4
    assert layout.CONSTANTS["DEVICE_OUTSIDE"] == layout.CONSTANTS["OTHER_PHASE"] + 1


@pytest.mark.parametrize("path", ["/usr/local/cuda/lib/libcupti.so", "/usr/local/cuda/lib64/libcupti.so"])
def test_a_real_cupti_without_a_driver(path: str) -> None:
    if not Path(path).exists() or Path("/dev/nvidiactl").exists():
        pytest.skip("no CUPTI of a CUDA toolkit here, or a GPU")
    code = (
        "from argus import _native; from argus.tracer.kernels import library; "
        "print(_native.kernels_start(str(library())), _native.kernels_status())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"ARGUS_CUPTI": path}, capture_output=True, text=True,
        timeout=60, check=True,
    )  # fmt: skip
    assert "no NVIDIA driver" in done.stdout
    assert done.stdout.rstrip().endswith("None")
