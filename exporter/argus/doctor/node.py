"""Checks of the machine or container: shared memory, limits, clock."""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from argus import _native
from argus.doctor.finding import Finding, note, ok, problem
from argus.segment.files import base_directory
from argus.tracer.launchers import number

RANK_BYTES = 2 << 20
"""What a rank takes there at most, flight recorder included."""
_OTHERS_BYTES = 64 << 20
"""A container's usual /dev/shm in all; NCCL and data loaders want some of it too."""
_LEAST_FILES = 1024
_SLOW_CLOCK_NS = 500
_CLOCK_ROUNDS = 20_000
_STA_UNSYNC = 0x0040
_MIB = 1 << 20


def shared_memory(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Room, kind and permissions of the place where segments lie."""
    base = base_directory()
    elsewhere = "or set ARGUS_DIR, for ranks and exporter alike, to a directory that is on a tmpfs"
    if not base.is_dir():
        yield problem(f"{base} is no directory", f"make it, {elsewhere}")
        return
    space = os.statvfs(base)
    free, size = space.f_bavail * space.f_frsize, space.f_blocks * space.f_frsize
    ranks = number(environ, "LOCAL_WORLD_SIZE", "SLURM_NTASKS_PER_NODE") or 8
    told = f"{base}: {free // _MIB} MiB free of {size // _MIB} MiB"
    if free < ranks * RANK_BYTES:
        yield problem(
            f"{told}; {ranks} ranks take up to {ranks * RANK_BYTES // _MIB} MiB",
            "make room, start the container with a larger --shm-size (Kubernetes: an emptyDir with "
            f"medium: Memory at {base}), {elsewhere}",
        )
    elif free < _OTHERS_BYTES:
        yield note(
            f"{told}, enough for ARGUS; NCCL and data loaders may need more",
            "start the container with a larger --shm-size",
        )
    else:
        yield ok(told)
    kind = _file_system(base)
    if kind and kind not in ("tmpfs", "ramfs"):
        yield note(f"{base} is on {kind}, so that segments are written to a disk", elsewhere[3:])
    yield from _try_segment(base, elsewhere)


def _try_segment(base: Path, elsewhere: str) -> Iterator[Finding]:
    """Make a segment as a rank would, where no exporter looks."""
    own = base / f"argus-{os.geteuid()}"
    try:
        status = own.lstat()
    except FileNotFoundError:
        directory = base
    except OSError as error:
        yield problem(f"{own} can't be looked at: {error.strerror}", f"mend its permissions, {elsewhere}")
        return
    else:
        directory = own
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            yield problem(f"{own} is not a directory of this user", f"remove it, {elsewhere}")
            return
    try:
        room = tempfile.mkdtemp(prefix="argus-doctor.", dir=directory)
        try:
            segment = _native.Segment(os.path.join(room, "trial.seg"), run_id="argus-doctor", rank=0)
            segment.close("ended")
        finally:
            shutil.rmtree(room, ignore_errors=True)
    except OSError as error:
        yield problem(
            f"no segment can be made in {directory}: {error.strerror}",
            f"let user {os.geteuid()} write there and leave room for {RANK_BYTES // _MIB} MiB, {elsewhere}",
        )
    else:
        yield ok(f"a segment could be made and removed in {directory}")


def _file_system(path: Path) -> str:
    """Kind of the file system that holds ``path``; empty where nobody says."""
    best, kind = "", ""
    try:
        for line in Path("/proc/self/mounts").read_text().splitlines():
            _, mount, found, *_ = line.split(" ")
            mount = mount.replace("\\040", " ")
            if path.is_relative_to(mount) and len(mount) >= len(best):
                best, kind = mount, found
    except (OSError, ValueError):
        return ""
    return kind


def limits() -> Iterator[Finding]:
    """Limits that a rank or an exporter could run into."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files != resource.RLIM_INFINITY and files < _LEAST_FILES:
        yield note(f"{files} files may be open", f"raise the limit (ulimit -n {_LEAST_FILES})")
    else:
        yield ok(f"{'any number of' if files == resource.RLIM_INFINITY else files} files may be open")
    size, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if size != resource.RLIM_INFINITY and size < RANK_BYTES:
        yield problem(
            f"files may hold {size} bytes at most, a segment is larger", "raise the limit (ulimit -f)"
        )


def clock() -> Iterator[Finding]:
    """What reading the clock costs, and whether the time of day is kept."""
    source = _read("/sys/devices/system/clocksource/clocksource0/current_clocksource") or "unknown"
    took = min(_clock_cost_ns() for _ in range(3))
    told = f"clock source {source}, {took:.0f} ns a reading"
    if took > _SLOW_CLOCK_NS:
        yield problem(
            f"{told}: each phase reads it twice",
            "let the kernel use the TSC (clocksource=tsc), or ask the provider of the virtual machine",
        )
    else:
        yield ok(told)
    synchronised = _is_synchronised()
    if synchronised is False:
        yield note(
            "the time of day is not synchronised; alerts do not need it, traces of several nodes do",
            "run chrony or systemd-timesyncd",
        )
    elif synchronised:
        yield ok("the time of day is synchronised")


def _clock_cost_ns() -> float:
    read = time.monotonic_ns
    began = read()
    for _ in range(_CLOCK_ROUNDS):
        read()
    return (read() - began) / _CLOCK_ROUNDS


def _is_synchronised() -> bool | None:
    """As the kernel says (``adjtimex``, read only); None: it is not allowed to say."""
    timex = (ctypes.c_long * 64)()  # struct timex: modes, then offset, freq, maxerror, esterror, status
    try:
        if ctypes.CDLL(None).adjtimex(timex) < 0:
            return None
    except (OSError, AttributeError):
        return None
    return not ctypes.c_int(timex[5]).value & _STA_UNSYNC


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
