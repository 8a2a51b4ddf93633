"""One connection: authentication, method, page, compression."""

from __future__ import annotations

import gzip
import logging
import time
from collections.abc import Mapping
from email.message import Message
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from argus.exporter.flight.alerts import MAX_BYTES
from argus.exporter.web.page import Page, plain

if TYPE_CHECKING:
    from argus.exporter.web.server import Server

_LOG = logging.getLogger(__name__)

_GZIP_LEAST = 512
"""Smaller bodies gain nothing."""
_BODY_S = 30.0
"""For a body to come, however slowly."""


def accepts_gzip(header: str) -> bool:
    """Whether an Accept-Encoding header allows gzip."""
    for part in header.split(","):
        coding, *parameters = (piece.strip().lower() for piece in part.split(";"))
        if coding in ("gzip", "*"):
            quality = next((piece[2:] for piece in parameters if piece.startswith("q=")), "1")
            try:
                return float(quality) > 0
            except ValueError:
                return False
    return False


class Handler(BaseHTTPRequestHandler):
    """Serves GET and HEAD, and POST where alerts are taken."""

    protocol_version = "HTTP/1.1"
    server_version = "argus-exporter"
    sys_version = ""
    timeout = 60.0  # between requests of a kept connection; longer than usual scrape intervals
    # Headers and body leave together: as two packets, the second would wait for a delayed
    # acknowledgement, 40 ms.
    wbufsize = 1 << 16
    disable_nagle_algorithm = True
    server: Server

    def do_GET(self) -> None:
        self._reply()

    def do_HEAD(self) -> None:
        self._reply()

    def do_POST(self) -> None:
        self._reply()

    def _reply(self) -> None:
        with self.server.answering(self.request):
            self._answer(body=self.command != "HEAD")
            self.wfile.flush()

    def _answer(self, body: bool) -> None:
        unread = "Content-Length" in self.headers or "Transfer-Encoding" in self.headers
        config, _ = self.server.settings.current()
        if not self.server.authenticator.check(self.headers.get("Authorization"), config.users):
            page = plain(401, "Unauthorized", {"WWW-Authenticate": "Basic"})
        elif self.command == "POST":
            content = self._posted()
            unread = not isinstance(content, bytes)
            page = self._take(content) if isinstance(content, bytes) else content
        else:
            page = self._page()
        if unread:
            # What follows a body that was not read can't be told apart from it.
            self.close_connection = True
        self._send(page, config.headers, body)

    def _target(self) -> tuple[str, str]:
        """Path and query; both empty where they can't be told."""
        try:
            parts = urlsplit(self.path)
        except ValueError:
            return "", ""
        return parts.path, parts.query

    def _posted(self) -> bytes | Page:
        """The body of a POST, or why it is not taken."""
        if not self.server.pages.takes(self._target()[0]):
            return plain(405, "Method not allowed", {"Allow": "GET, HEAD"})
        if self.headers.get_content_type() != "application/json":
            return plain(415, "Only application/json is taken")
        length = self.headers.get("Content-Length", "")
        if "Transfer-Encoding" in self.headers or not (length.isascii() and length.isdigit()):
            return plain(411, "Content-Length is needed")
        if len(length) > 12 or int(length) > MAX_BYTES:
            return plain(413, f"More than {MAX_BYTES} bytes; set max_alerts in Alertmanager's webhook_config")
        content = self._read(int(length))
        return plain(408, "The body did not come in time") if content is None else content

    def _read(self, length: int) -> bytes | None:
        deadline = time.monotonic() + _BODY_S
        parts = []
        while length > 0 and time.monotonic() < deadline:
            part = self.rfile.read1(min(length, 1 << 16))
            if not part:
                return None
            parts.append(part)
            length -= len(part)
        return None if length else b"".join(parts)

    def _take(self, content: bytes) -> Page:
        try:
            return self.server.pages.post(content)
        except Exception:
            _LOG.exception("what was posted to %r failed", self.path)
            return plain(500, "Internal error; the exporter's log says more")

    def _page(self) -> Page:
        if not self.server.requests.acquire(blocking=False):
            return plain(503, "Too many requests at once; see --web.max-requests")
        try:
            return self.server.pages.get(*self._target(), self.headers.get("Accept", ""))
        except Exception:
            _LOG.exception("request for %r failed", self.path)
            return plain(500, "Internal error; the exporter's log says more")
        finally:
            self.server.requests.release()

    def _send(self, page: Page, extra: Mapping[str, str], body: bool) -> None:
        content = page.body
        self.send_response(page.status)
        if page.compress and len(content) >= _GZIP_LEAST:
            self.send_header("Vary", "Accept-Encoding")
            if accepts_gzip(self.headers.get("Accept-Encoding", "")):
                content = gzip.compress(content, 6, mtime=0)
                self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Type", page.content_type)
        self.send_header("Content-Length", str(len(content)))
        for name, value in {**extra, **page.headers}.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if body:
            self.wfile.write(content)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Plain text, with 405 for methods other than GET and HEAD."""
        self.close_connection = True
        # Before the request line was understood there are no headers, nor a method.
        if not isinstance(getattr(self, "headers", None), Message):
            self.headers = Message()
        if code == 501:
            page = plain(405, "Method not allowed", {"Allow": "GET, HEAD"})
        else:
            page = plain(code, message or "Bad request")
        self._send(page, {}, self.command != "HEAD")

    def log_message(self, format: str, *args: Any) -> None:
        _LOG.debug("%s %s", self.client_address[0], format % args)
