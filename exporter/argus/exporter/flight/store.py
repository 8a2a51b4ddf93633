"""Snapshots and dumps on disk: a bounded number and size, the oldest go first."""

from __future__ import annotations

import gzip
import logging
import os
import re
import stat
import threading
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from argus.flight.files import atomic_file

_LOG = logging.getLogger(__name__)

_STEM = r"\d{8}T\d{6}Z_[A-Za-z0-9.-]{1,48}_[A-Za-z0-9_.-]{1,200}"
_MOST_RANKS = 8
"""More are not named in a file's name."""


def default_directory(name: str = "snapshots") -> Path:
    """In systemd's state directory of the unit, root's, or the user's own."""
    state = os.environ.get("STATE_DIRECTORY", "").split(":")[0]
    if state:
        return Path(state) / name
    if os.geteuid() == 0:
        return Path("/var/lib/argus") / name
    home = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return Path(home) / "argus" / name


@dataclass(frozen=True)
class Snapshot:
    """One that is there; ``alert`` and ``about`` as they are in its name."""

    name: str
    bytes: int
    written: str
    alert: str
    about: str


class Store:
    """The directory of snapshots, or of dumps.

    Args:
        directory: Made when the first one is written.
        most: How many are kept.
        most_bytes: How large all of them may be together.
        suffix: Of their names; compressed where it ends in ``.gz``.
    """

    def __init__(self, directory: Path, most: int, most_bytes: int, suffix: str = ".pftrace.gz") -> None:
        self.directory = directory
        self._suffix = suffix
        self._name = re.compile(_STEM + re.escape(suffix) + r"\Z")
        self._most = most
        self._most_bytes = most_bytes
        self._lock = threading.Lock()

    def add(self, alert: str, run_id: str, ranks: Iterable[int], parts: Iterable[bytes]) -> str:
        """Write a snapshot, and remove what is too much by then; its name.

        Raises:
            OSError: It can't be written, or is larger than everything may be.
        """
        with self._lock:
            os.makedirs(self.directory, mode=0o750, exist_ok=True)
            self._sweep()
            name = self._free_name(alert, run_id, sorted(ranks))
            path = self.directory / name
            with atomic_file(path, 0o640) as file, self._packed(file) as packed:
                for part in parts:
                    packed.write(part)
                    if file.tell() > self._most_bytes:
                        raise OSError(
                            None, f"larger than the {self._most_bytes} bytes that all may have", str(path)
                        )
            self._trim()
            return name

    def kept(self) -> list[Snapshot]:
        """Those that are there, newest first."""
        found = []
        with suppress(OSError), os.scandir(self.directory) as entries:
            for entry in entries:
                if self._name.match(entry.name) and entry.is_file(follow_symlinks=False):
                    with suppress(OSError):
                        size = entry.stat(follow_symlinks=False).st_size
                        written, alert, about = entry.name.removesuffix(self._suffix).split("_", 2)
                        found.append(Snapshot(entry.name, size, written, alert, about))
        return sorted(found, key=lambda each: each.name, reverse=True)

    def read(self, name: str) -> bytes | None:
        """A snapshot's content, None where there is none of this name."""
        if not self._name.match(name):
            return None
        try:
            fd = os.open(self.directory / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            return None
        with os.fdopen(fd, "rb") as file:
            return file.read()

    def _packed(self, file: BinaryIO) -> AbstractContextManager[BinaryIO]:
        if not self._suffix.endswith(".gz"):
            return nullcontext(file)
        return gzip.GzipFile(fileobj=file, mode="wb", mtime=0, filename="", compresslevel=6)  # type: ignore[return-value]

    def _free_name(self, alert: str, run_id: str, ranks: list[int]) -> str:
        listed = ".".join(map(str, ranks[:_MOST_RANKS])) + (".etc" if len(ranks) > _MOST_RANKS else "")
        now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        stem = f"{now}_{_clean(alert, 48).replace('_', '-')}_{_clean(run_id, 64)}_r{listed}"
        name, number = f"{stem}{self._suffix}", 1
        while (self.directory / name).exists():
            number += 1
            name = f"{stem}-{number}{self._suffix}"
        return name

    def _trim(self) -> None:
        kept, size = 0, 0
        for each in self.kept():
            kept += 1
            size += each.bytes
            if kept > self._most or size > self._most_bytes:
                with suppress(OSError):
                    os.unlink(self.directory / each.name)
                kept, size = kept - 1, size - each.bytes

    def _sweep(self) -> None:
        """Remove what an exporter left that was killed while it wrote."""
        for path in self.directory.glob(f".*{self._suffix}.*.tmp"):
            with suppress(OSError):
                path.unlink()


def _clean(text: str, most: int) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "-", text)[:most] or "-"
