"""Files that are there as a whole or not at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


@contextmanager
def atomic_file(path: Path, mode: int) -> Iterator[BinaryIO]:
    """A file to write, which appears under its name when the block ends well.

    Raises:
        OSError: It can't be written.
    """
    if not path.name or path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "a file is to be written, this is a directory", str(path))
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with suppress(FileNotFoundError):
        os.unlink(temporary)
    try:
        fd = os.open(temporary, flags, mode)
    except OSError as error:  # name what the caller knows, not the temporary file
        raise OSError(error.errno, error.strerror, str(path)) from None
    try:
        with os.fdopen(fd, "wb") as file:
            os.fchmod(file.fileno(), mode)  # whatever the umask
            yield file
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
