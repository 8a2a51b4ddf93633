"""NVTX ranges and the kernel tracer together: device seconds of phases that threads without the GIL begin."""

from __future__ import annotations

from pathlib import Path

import pytest

from argus.tracer.kernels import library
from kernels_support import build
from nvtx_support import Program

JOB = """
import time
standin = ctypes.CDLL(os.environ["STANDIN"] + "/libcupti.so", mode=ctypes.RTLD_GLOBAL)
ctypes.CDLL(os.environ["STANDIN"] + "/libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
standin.standin_now.restype = u64
assert _native.kernels_start(os.environ["KERNELS"], cupti=os.environ["STANDIN"] + "/libcupti.so") is None
argus.init(run_id="r")

def launch(name, ms):
    now = standin.standin_now()
    standin.standin_launch(0, 10, name, 7, u64(now), u64(now + ms * 1_000_000))
    time.sleep(ms / 1000)

for step in range(12):
    caller.push(b"iteration")
    caller.push(b"forward"); launch(b"sm90_xmma_gemm_bf16", 2); caller.pop()
    caller.push(b"no rule"); caller.pop()
    caller.push(b"all-grads-sync"); launch(b"ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 1); caller.pop()
    caller.pop()

def done():
    standin.cuptiActivityFlushAll(1)
    snapshot = Snapshot(_native.own_segments()[0].snapshot())
    slots = [slot for slot in snapshot._records("DEVICE_ITERATIONS", "device_iteration") if slot["ordinal"]]
    return snapshot, slots

deadline = time.monotonic() + 30
snapshot, slots = done()
while len(slots) < 8 and time.monotonic() < deadline:
    snapshot, slots = done()
phases = {name: index for index, name in enumerate(snapshot.phases)}
tell(kinds={name: phase["kind"] for name, phase in snapshot.phases.items()}, status=_native.kernels_status(),
     forward=[slot["compute"][phases["forward"]] for slot in slots if slot["attributed"]],
     sync=[slot["communication"][phases["grad_sync"]] for slot in slots if slot["attributed"]])
"""


@pytest.fixture
def program(nvtx_caller: Path, tmp_path: Path) -> Program:
    return Program(nvtx_caller, tmp_path)


def test_kernels_belong_to_the_range_that_launched_them(program: Program) -> None:
    told = program.tell(JOB, STANDIN=str(build()), KERNELS=str(library()))
    assert told["kinds"] == {"forward": 0, "grad_sync": 2}  # with device seconds, compute stays compute
    assert len(told["forward"]) >= 8, told["status"]
    # The stand-in's kernels take 2 and 1 ms; its clock and the tracer's are read one after the other.
    assert all(abs(ns - 2_000_000) < 50_000 for ns in told["forward"][1:]), told
    assert all(abs(ns - 1_000_000) < 50_000 for ns in told["sync"][1:]), told
