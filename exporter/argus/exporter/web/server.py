"""Listening: sockets, TLS, threads, limits."""

from __future__ import annotations

import logging
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import ThreadingHTTPServer
from typing import Any

from argus.exporter.web import tls
from argus.exporter.web.auth import Authenticator
from argus.exporter.web.connections import Connections
from argus.exporter.web.handler import Handler
from argus.exporter.web.pages import Pages
from argus.exporter.web.settings import Settings

_LOG = logging.getLogger(__name__)

DEFAULT_PORT = 9733
_MOST_CONNECTIONS = 64
_HANDSHAKE_S = 10.0


class AddressError(ValueError):
    """A listen address that can't be understood or used; the message names it."""


def parse_address(text: str) -> tuple[str, int]:
    """Host ("" for all) and port of ``:port``, ``host:port`` or ``[v6]:port``."""
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise AddressError(f"listen address {text!r} needs the form :port, host:port or [address]:port")
    if ":" in host and not bracketed:
        raise AddressError(f"listen address {text!r}: write an IPv6 address in brackets, [::1]:{port}")
    return (host[1:-1] if bracketed else host), int(port)


class Server(ThreadingHTTPServer):
    """One listening socket; each connection has a thread, up to a limit.

    Args:
        address: As ``parse_address`` reads it.
        pages: What is served.
        settings: TLS, users, headers.
        max_requests: Requests answered at once, over all connections.

    Raises:
        AddressError: It can't be listened on.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, address: str, pages: Pages, settings: Settings, max_requests: int = 16) -> None:
        self.pages = pages
        self.settings = settings
        self.authenticator = Authenticator()
        self.requests = threading.BoundedSemaphore(max_requests)
        self._connections = Connections(_MOST_CONNECTIONS)
        self._answers = 0
        self._idle = threading.Condition()
        self._text = address
        host, port = parse_address(address)
        try:
            self._listen(host, port)
        except OSError as error:
            raise AddressError(
                f"can't listen on {address}: {error.strerror or error}; choose another one"
            ) from None

    def _listen(self, host: str, port: int) -> None:
        dual = not host and socket.has_dualstack_ipv6()
        flags = socket.AI_PASSIVE
        family, _, _, _, bound = (
            (socket.AF_INET6, 0, 0, "", ("::", port))
            if dual
            else socket.getaddrinfo(host or "0.0.0.0", port, type=socket.SOCK_STREAM, flags=flags)[0]
        )
        self.address_family = family
        super().__init__(bound[:2], Handler, bind_and_activate=False)  # type: ignore[arg-type]
        try:
            if family == socket.AF_INET6:
                self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if dual else 1)
            self.server_bind()
            self.server_activate()
        except BaseException:
            self.server_close()
            raise

    def server_bind(self) -> None:
        # The base class asks DNS for this machine's name here, which can take long and is not used.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = self.server_address[0], self.server_address[1]  # type: ignore[assignment]

    @property
    def url(self) -> str:
        """Where to find it, as far as this machine can tell."""
        host = parse_address(self._text)[0] or "localhost"
        scheme = "https" if self.settings.secure else "http"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.server_port}/"

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._connections.admit(request):
            _LOG.debug("more than %d connections, one is closed", _MOST_CONNECTIONS)
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._connections.leave(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        secured: socket.socket | None = None
        try:
            secured = self._secure(request, client_address)
            if secured is not None:
                super().process_request_thread(secured, client_address)
        finally:
            self._connections.leave(secured or request)

    def _secure(self, request: socket.socket, client_address: Any) -> socket.socket | None:
        """The handshake, in the connection's own thread so that a slow client delays nobody."""
        config, context = self.settings.current()
        if context is None:
            return request
        request.settimeout(_HANDSHAKE_S)
        try:
            secured = context.wrap_socket(request, server_side=True)
        except (OSError, ValueError) as error:
            _LOG.debug("%s: TLS handshake failed: %s", client_address[0], error)
            self.shutdown_request(request)
            return None
        self._connections.replace(request, secured)
        if config.tls and not tls.allowed(secured.getpeercert(), config.tls.client_allowed_sans):
            _LOG.debug("%s: client certificate has none of the allowed names", client_address[0])
            self._connections.leave(secured)
            self.shutdown_request(secured)
            return None
        return secured

    @contextmanager
    def answering(self, connection: socket.socket) -> Iterator[None]:
        """Around the answer to one request."""
        with self._idle:
            self._answers += 1
        try:
            with self._connections.answering(connection):
                yield
        finally:
            with self._idle:
                self._answers -= 1
                self._idle.notify_all()

    def wait_for_answers(self, timeout: float = 5.0) -> None:
        """Let answers that are under way leave."""
        with self._idle:
            self._idle.wait_for(lambda: not self._answers, timeout)

    def shutdown_request(self, request: Any) -> None:
        if isinstance(request, ssl.SSLSocket):
            # A polite close, so that clients can tell the end from a truncation.
            request.settimeout(1.0)
            with suppress(OSError, ValueError):
                request.unwrap()
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        _LOG.debug("connection of %s broke", client_address[0], exc_info=True)
