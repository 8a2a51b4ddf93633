"""Where a rank's segment lies: ``<base>/argus-<uid>/<run>.<rank>.<8 hex>.seg``."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import stat
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from argus._native import Segment, own_segments

DEFAULT_BASE = "/dev/shm"
_ELSEWHERE = "or set ARGUS_DIR to another directory that the exporter reads"
_STALE_SECONDS = 3600.0
_LOCK_SECONDS = 2.0
"""How long to wait for another rank that is starting on this node."""
_FLOCK = "hhqqi"  # struct flock: l_type, l_whence, l_start, l_len, l_pid


class PlaceError(Exception):
    """No place for the segment; the message says why and the mend."""


def base_directory() -> str:
    """``ARGUS_DIR``, or ``/dev/shm``."""
    return os.environ.get("ARGUS_DIR") or DEFAULT_BASE


def create_segment(*, run_id: str, rank: int, **identity: Any) -> Segment:
    """Make this user's directory where it is missing, and the rank's segment in it.

    Removes what dead ranks left: earlier segments of the same run and rank, and
    any that nobody has written to for an hour.

    Raises:
        PlaceError: Another live process has this run and rank, or the directory
            or the file can't be made.
    """
    directory = os.path.join(base_directory(), f"argus-{os.geteuid()}")
    stem = f"{_file_name(run_id)}.{rank}."
    with _locked(directory) as fd:
        _clear(fd, directory, stem, run_id, rank)
        path = os.path.join(directory, f"{stem}{os.urandom(4).hex()}.seg")
        try:
            return Segment(path, run_id=run_id, rank=rank, **identity)
        except OSError as error:
            raise PlaceError(
                f"no segment in {directory}: {error.strerror}; {_mend(error, directory)}"
            ) from None


def _file_name(run_id: str) -> str:
    """The run id, or where it can't be part of a file's name, something as unique."""
    clean = re.sub(r"[^A-Za-z0-9_-]", "_", run_id)[:80]
    if clean == run_id:
        return clean
    return f"{clean}-{hashlib.sha256(run_id.encode('utf-8', 'replace')).hexdigest()[:8]}"


@contextmanager
def _locked(directory: str) -> Iterator[int]:
    """The directory, open, and locked against other ranks that start."""
    try:
        with suppress(FileExistsError):
            os.mkdir(directory, 0o750)
            os.chmod(directory, 0o750)  # whatever the umask
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise PlaceError(f"{directory} can't be used: {error.strerror}; {_mend(error, directory)}") from None
    try:
        status = os.fstat(fd)
        if status.st_uid != os.geteuid():
            raise PlaceError(f"{directory} belongs to user {status.st_uid}; remove it, {_ELSEWHERE}")
        if stat.S_IMODE(status.st_mode) & 0o022:
            os.fchmod(fd, 0o750)
        _wait_for_lock(fd)
        yield fd
    finally:
        os.close(fd)


def _mend(error: OSError, directory: str) -> str:
    """What to do about it, for whoever reads the line."""
    base = os.path.dirname(directory)
    if not os.path.isdir(base):
        mend = f"make the directory {base}"
    elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        mend = f"let user {os.geteuid()} write there"
    elif error.errno in (errno.EMFILE, errno.ENFILE):
        return "raise the limit of open files (ulimit -n), or call argus.init() earlier"
    elif error.errno == errno.EFBIG:
        return "raise the limit on the size of files (ulimit -f) to 2 MiB at least"
    elif error.errno in (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM):
        mend = "make room there (up to 2 MiB a rank)"
    elif error.errno in (errno.ELOOP, errno.ENOTDIR):
        mend = "remove it"
    else:
        mend = "mend that"
    return f"{mend}, {_ELSEWHERE}"


def _wait_for_lock(fd: int) -> None:
    """Best effort: without it two ranks that start in the same moment may not see each other."""
    deadline = time.monotonic() + _LOCK_SECONDS
    while time.monotonic() < deadline:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError:
            time.sleep(0.005)


def _clear(directory_fd: int, directory: str, stem: str, run_id: str, rank: int) -> None:
    ours = {segment.inode for segment in own_segments()}
    now = time.time()
    for name in os.listdir(directory_fd):
        if not name.endswith((".seg", ".seg.tmp")):
            continue
        with suppress(FileNotFoundError, PermissionError):
            status = os.stat(name, dir_fd=directory_fd, follow_symlinks=False)
            same = name.startswith(stem)
            if not stat.S_ISREG(status.st_mode) or not (same or now - status.st_mtime > _STALE_SECONDS):
                continue
            # A file of this process is not opened: closing it again would drop its lock.
            alive = (status.st_dev, status.st_ino) in ours or _is_locked(name, directory_fd)
            if not alive:
                os.unlink(name, dir_fd=directory_fd)
            elif same:
                raise PlaceError(
                    f"another process has rank {rank} of run {run_id!r} ({directory}/{name}); "
                    "give each process its own rank (argus.init(rank=…)), or its own run (ARGUS_RUN_ID)"
                )


def _is_locked(name: str, directory_fd: int) -> bool:
    fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=directory_fd)
    try:
        wanted = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        answer = struct.unpack(_FLOCK, fcntl.fcntl(fd, fcntl.F_GETLK, wanted))
        return bool(answer[0] != fcntl.F_UNLCK)
    finally:
        os.close(fd)
