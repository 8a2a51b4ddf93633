"""Progress on stderr: one line that rewrites itself on a terminal, an occasional line elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TextIO

_EVERY = 10.0


class Progress:
    """Tells how far a command is.

    Args:
        stream: Where to; stderr by default.
        quiet: Say nothing.
    """

    def __init__(self, stream: TextIO | None = None, quiet: bool = False) -> None:
        self._stream = stream or sys.stderr
        self._quiet = quiet
        self._terminal = self._stream.isatty()
        self._told = float("-inf")
        self._width = 0

    def __call__(self, message: str) -> None:
        """Say what is being done now."""
        if self._quiet:
            return
        now = time.monotonic()
        if self._terminal:
            self._stream.write("\r" + message.ljust(self._width))
            self._width = len(message)
        elif now - self._told >= _EVERY:
            self._stream.write(message + "\n")
            self._told = now
        self._stream.flush()

    def clear(self) -> None:
        """Take the line away again, before something else is printed."""
        if self._terminal and self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._stream.flush()
            self._width = 0
