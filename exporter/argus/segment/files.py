"""Segments on this node: where they are, whose they are, whether their rank is alive.

``<base>/argus-<uid>/*.seg``.  Any local user can create such names, so a
directory must be a real one that belongs to the user in its name, and a
segment a regular file of the same user; links are never followed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
import struct
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from argus.segment.sections import MAX_BYTES

DEFAULT_BASE = "/dev/shm"
_DIRECTORY = re.compile(r"argus-(0|[1-9][0-9]{0,9})\Z")
_SUFFIX = ".seg"
_MOST_NAMES = 4_096
"""Names looked at in one directory, so that a user who fills theirs costs the exporter little."""
_FLOCK = "hhqqi"  # struct flock: l_type, l_whence, l_start, l_len, l_pid


def base_directory() -> Path:
    """The directory that holds the users' directories, ``ARGUS_DIR`` or ``/dev/shm``."""
    return Path(os.environ.get("ARGUS_DIR") or DEFAULT_BASE)


class RefusedError(Exception):
    """A file or directory that is not read, because of what it is; the message says why and the mend."""


class CrowdedError(RefusedError):
    """There are too many segments."""


class UnreadableError(Exception):
    """A file or directory that the exporter may not read; the message says why and the mend."""


@dataclass(frozen=True)
class Entry:
    """A file that looks like a segment, not opened yet.

    Attributes:
        path: Where it was found.
        uid: The user whose directory holds it.
        inode: Device and inode of what the name pointed to.
    """

    path: Path
    uid: int
    inode: tuple[int, int]


def user_directories(base: Path) -> tuple[list[tuple[Path, int]], list[str]]:
    """What lies below ``base`` under a user's name: with its id if it is that user's, and what is another's.

    Any user can make as many of the others as they like, so they must cost little. Nothing when
    ``base`` is absent.
    """
    own: list[tuple[Path, int]] = []
    foreign: list[str] = []
    with suppress(FileNotFoundError), os.scandir(base) as entries:
        for entry in entries:
            match = _DIRECTORY.match(entry.name)
            if not match:
                continue
            with suppress(FileNotFoundError):
                uid = int(match[1])
                if entry.stat(follow_symlinks=False).st_uid == uid:
                    own.append((Path(entry.path), uid))
                else:
                    foreign.append(entry.path)
    return sorted(own), foreign


def entries(directory: Path, uid: int) -> list[Entry]:
    """Names in a user's directory that look like segments, those last written to first.

    Raises:
        RefusedError: It is a link, no directory, or another user's.
        UnreadableError: The exporter may not read it.
    """
    try:
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise _explain(error, directory) from None
    try:
        owner = os.fstat(fd).st_uid
        if owner != uid:
            raise RefusedError(f"{directory} belongs to user {owner}, not to user {uid}; remove it")
        with os.scandir(fd) as listing:
            names = [item.name for item in islice(listing, _MOST_NAMES) if item.name.endswith(_SUFFIX)]
        found = []
        for name in names:
            with suppress(FileNotFoundError):
                status = os.stat(name, dir_fd=fd, follow_symlinks=False)
                entry = Entry(directory / name, uid, (status.st_dev, status.st_ino))
                found.append((-status.st_mtime_ns, name, entry))
        return [entry for _, _, entry in sorted(found, key=lambda item: item[:2])]
    finally:
        os.close(fd)


def open_segment(entry: Entry) -> int:
    """Open a segment read-only and check what it is.

    Closing the descriptor drops the POSIX locks that this process itself holds on the file: never
    open a segment that this process writes.

    Raises:
        FileNotFoundError: It is gone, or another file has taken its name.
        RefusedError: It is a link, no regular file, another user's, or too large.
        UnreadableError: The exporter may not read it.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        fd = os.open(entry.path, flags)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _explain(error, entry.path) from None
    try:
        status = os.fstat(fd)
        if (status.st_dev, status.st_ino) != entry.inode:
            raise FileNotFoundError(errno.ENOENT, "replaced while it was opened", str(entry.path))
        if not stat.S_ISREG(status.st_mode):
            raise RefusedError(f"{entry.path} is not a regular file; remove it")
        if status.st_uid != entry.uid:
            raise RefusedError(
                f"{entry.path} belongs to user {status.st_uid}, not to user {entry.uid}; remove it"
            )
        if status.st_size > MAX_BYTES:
            raise RefusedError(f"{entry.path} has {status.st_size} bytes, more than {MAX_BYTES}; remove it")
    except BaseException:
        os.close(fd)
        raise
    return fd


def _explain(error: OSError, path: Path) -> RefusedError | UnreadableError:
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return RefusedError(f"{path} is a link or no directory, and links are not followed; remove it")
    if error.errno in (errno.EACCES, errno.EPERM):
        return UnreadableError(
            f"{path} may not be read by user {os.geteuid()}; run the exporter as "
            "root (in a container with CAP_DAC_OVERRIDE), as the job's user, or in the group that owns it"
        )
    if error.errno in (errno.ENXIO, errno.ENODEV):
        return RefusedError(f"{path} is not a regular file; remove it")
    return UnreadableError(f"{path} can't be opened: {error.strerror}")


def is_locked(fd: int) -> bool:
    """Whether another process holds its lock on the file, that is, whether its rank is alive.

    Works on a read-only descriptor and for a process in another PID namespace.
    """
    return lock_holder(fd) is not None


def lock_holder(fd: int) -> int | None:
    """The process that holds the lock on the file; 0 where it is in a PID namespace that can't be seen
    from here; None where nobody holds it."""
    question = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    kind, _, _, _, pid = struct.unpack(_FLOCK, fcntl.fcntl(fd, fcntl.F_GETLK, question))
    return None if kind == fcntl.F_UNLCK else max(pid, 0)


def is_unlinked(fd: int) -> bool:
    """Whether the file has no name any more."""
    return os.fstat(fd).st_nlink == 0


def remove(entry: Entry) -> bool:
    """Unlink a dead rank's segment, unless the name belongs to another file by now; whether it is gone."""
    try:
        # The directory is its user's, who may put a link to another one in its place.
        fd = os.open(entry.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        status = os.stat(entry.path.name, dir_fd=fd, follow_symlinks=False)
        if (status.st_dev, status.st_ino) == entry.inode:
            os.unlink(entry.path.name, dir_fd=fd)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    finally:
        os.close(fd)
    return True
