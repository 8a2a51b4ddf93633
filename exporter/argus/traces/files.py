"""Open a trace file's bytes, unpacked where it is gzip, without losing what stands before damage."""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, cast

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_BLOCK = 1 << 16
_GZIP = 16 + zlib.MAX_WBITS


class DamagedError(Exception):
    """A compressed file ends too early or makes no sense from here on; all before it was given out."""


class _Unpacked(io.RawIOBase):
    """The contents of a gzip file of one or more members.

    The standard library's reader buffers, and throws away what it holds when it
    meets the damage.
    """

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self._unpack = zlib.decompressobj(_GZIP)
        self._packed = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        room = memoryview(buffer).cast("B")
        while True:
            packed, self._packed = self._packed or self._raw.read(_BLOCK), b""
            if not packed:
                if self._unpack.eof:
                    return 0
                raise DamagedError("it ends too early")
            if self._unpack.eof:
                packed = packed.lstrip(b"\0")  # padding after a member is allowed
                if not packed:
                    continue
                self._unpack = zlib.decompressobj(_GZIP)
            try:
                data = self._unpack.decompress(packed, len(room))
            except zlib.error as error:
                raise DamagedError(str(error)) from error
            self._packed = self._unpack.unused_data if self._unpack.eof else self._unpack.unconsumed_tail
            if data:
                room[: len(data)] = data
                return len(data)


@contextmanager
def open_bytes(path: str) -> Iterator[io.BufferedReader]:
    """A file's bytes, unpacked where it is gzip (by content, not by name).

    Read it with ``read1`` or line by line: ``read`` gives nothing of a block in
    which the file is damaged.

    Raises:
        OSError: It can't be opened; while reading also DamagedError.
    """
    with open(path, "rb") as raw:
        packed = raw.peek(2)[:2] == b"\x1f\x8b"
        if packed:
            with io.BufferedReader(cast(Any, _Unpacked(raw)), _BLOCK) as unpacked:
                yield unpacked
        else:
            yield raw
