"""Open connections, at most so many: beyond that, who keeps the server waiting gives way to who comes."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_PATIENCE_S = 10.0
"""An answer that its client takes longer to read keeps the server waiting, too."""


class Connections:
    """The connections of one server.

    A client that opens many and sends nothing, or a little at a time, would otherwise keep
    Prometheus out for as long as it likes.

    Args:
        most: How many may be open.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._waiting: dict[socket.socket, float] = {}  # since when, for a request
        self._answering: dict[socket.socket, float] = {}

    def admit(self, connection: socket.socket) -> bool:
        """Count a new connection in; False: none of the others can be asked to give way."""
        with self._lock:
            if len(self._waiting) + len(self._answering) >= self._most and not self._evict():
                return False
            self._waiting[connection] = time.monotonic()
            return True

    def replace(self, old: socket.socket, new: socket.socket) -> None:
        """The connection is another object now, for it speaks TLS."""
        with self._lock:
            since = self._waiting.pop(old, None)
            if since is not None:
                self._waiting[new] = since
        if since is None:  # it had to give way meanwhile
            _hang_up(new)

    def leave(self, connection: socket.socket) -> None:
        """The connection is closed."""
        with self._lock:
            self._waiting.pop(connection, None)
            self._answering.pop(connection, None)

    @contextmanager
    def answering(self, connection: socket.socket) -> Iterator[None]:
        """Around the answer to one request."""
        with self._lock:
            if self._waiting.pop(connection, None) is not None:
                self._answering[connection] = time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                if self._answering.pop(connection, None) is not None:
                    self._waiting[connection] = time.monotonic()

    def _evict(self) -> bool:
        """Hang up on the one that has kept the server waiting longest."""
        for group, patience in ((self._waiting, 0.0), (self._answering, _PATIENCE_S)):
            longest = min(group, key=group.__getitem__, default=None)
            if longest is not None and time.monotonic() - group[longest] >= patience:
                del group[longest]
                _hang_up(longest)
                return True
        return False


def _hang_up(connection: socket.socket) -> None:
    """Let the thread that reads or writes there find the connection closed; it closes it."""
    with suppress(OSError):
        # Past the class of TLS sockets, whose state belongs to their thread.
        socket.socket.shutdown(connection, socket.SHUT_RDWR)
