"""Checks of the GPU's libraries: NVML for the exporter, CUPTI for ranks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from argus.doctor.finding import Finding, note, ok, problem
from argus.hardware import nvml
from argus.tracer.kernels import copies_of_cupti

DEVICES = ("/dev/nvidiactl", "/dev/dxg")
"""What a machine with an NVIDIA driver has; WSL has the other."""

_UTILITIES = (
    "give the container the driver's utilities (NVIDIA_DRIVER_CAPABILITIES=compute,utility), or install the "
    "driver's package that holds libnvidia-ml.so.1"
)
_TRIAL_S = 30

# In a process of its own: CUPTI stays where it was loaded, and a wrong library can end a process.
_TRIAL = """
import ctypes, json, sys
from argus import _native
from argus.tracer import kernels
reason = kernels.start()
found = [line.split()[-1] for line in open("/proc/self/maps") if "libcupti" in line]
version = ctypes.c_uint32()
if found and ctypes.CDLL(found[0]).cuptiGetVersion(ctypes.byref(version)) != 0:
    version.value = 0
print(json.dumps({"reason": reason, "path": found[0] if found else None, "version": version.value}))
"""


def has_device() -> bool:
    """Whether this process sees an NVIDIA driver."""
    return any(map(os.path.exists, DEVICES))


def management() -> Iterator[Finding]:
    """NVML: what the exporter can tell of the GPUs."""
    try:
        version = nvml.start()
    except nvml.AbsentError as error:
        if has_device():
            yield problem(f"there is a GPU, but NVML can't be used: {error}", _UTILITIES)
        else:
            yield ok("no NVIDIA GPU is seen here; the exporter leaves its GPU metrics out")
        return
    except nvml.DriverError as error:
        said, _, mend = str(error).partition("; ")
        yield problem(said, mend)
        return
    try:
        yield from _each_gpu(version)
    finally:
        nvml.stop()


def _each_gpu(version: str) -> Iterator[Finding]:
    listed = list(nvml.gpus(version))
    missing = nvml.count() - len(listed)
    if missing:
        yield problem(f"{missing} GPUs can't be opened", "nvidia-smi and dmesg name them; drain the node")
    for gpu, handle in listed:
        who = f"GPU {gpu.index}, {gpu.model}, {gpu.uuid}, PCI {gpu.pci_bus_id or 'unknown'}, driver {version}"
        try:
            values = list(nvml.values(handle))
            instances = nvml.mig_instances(handle)
        except nvml.LostError as error:
            yield problem(f"{who}: {error}", "it has fallen off the bus or needs a reset; drain the node")
            continue
        divided = f", {len(instances)} MIG instances" if instances else ""
        yield ok(f"{who}: {len(values)} values{divided}")


def kernels(environ: Mapping[str, str]) -> Iterator[Finding]:
    """CUPTI: whether a rank could trace its kernels."""
    if environ.get("ARGUS_KERNELS", "").strip().lower() in ("0", "false", "no", "off"):
        yield note("ARGUS_KERNELS switches kernel tracing off", "unset it to see device seconds")
        return
    if not has_device():
        copies = len(list(copies_of_cupti(sys.path)))
        told = f"; {copies} copies of CUPTI came with Python packages" if copies else ""
        yield ok(f"no NVIDIA device is seen here, so kernels are not traced{told}")
        return
    yield from _restriction()
    variables = {**environ, "ARGUS_KERNELS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", _TRIAL], env=variables, capture_output=True, text=True, timeout=_TRIAL_S
    )
    try:
        answer = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        yield problem(
            f"loading CUPTI ended a trial process with status {done.returncode}: {last}",
            "set ARGUS_CUPTI to a libcupti of CUDA 11.8 to 13, or ARGUS_KERNELS=0",
        )
        return
    where = f"{answer['path']}, API version {answer['version']}" if answer["path"] else "CUPTI"
    if answer["reason"]:
        said, _, mend = answer["reason"].partition("; ")
        yield problem(f"{where}: {said}", mend or "see docs/kernels.md")
    else:
        yield ok(f"kernels can be traced ({where})")


def _restriction() -> Iterator[Finding]:
    try:
        parameters = Path("/proc/driver/nvidia/params").read_text()
    except OSError:
        return
    if "RmProfilingAdminOnly: 1" in parameters and os.geteuid() != 0:
        yield note(
            "the driver lets only administrators profile",
            "if kernels can't be traced: the administrator sets NVreg_RestrictProfilingToAdminUsers=0",
        )
