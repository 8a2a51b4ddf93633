"""The page that Prometheus scrapes, shown when its time has come."""

from __future__ import annotations

import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_ANSWER_WITHIN = 0.8
"""Part of the interval in which a scrape must be answered, so that it never fails."""


class _QuietServer(ThreadingHTTPServer):
    """Keeps silent about scrapes that Prometheus gave up, as it does when it is stopped."""

    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class Show:
    """Serves the current page: at first to every scrape, after ``hold`` to one scrape only."""

    def __init__(self, interval: float) -> None:
        self._changed = threading.Condition()
        self._page = b""
        self._fresh = False
        self._at_once = True
        self.repeated = 0
        self.arrived = 0.0  # time.monotonic() of the last scrape
        shown = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 60

            def do_GET(self) -> None:
                page = shown._next(time.monotonic() + _ANSWER_WITHIN * interval)
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(page)))
                self.end_headers()
                self.wfile.write(page)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = _QuietServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def show(self, page: bytes) -> None:
        """From now on this is the page."""
        with self._changed:
            self._page, self._fresh = page, True
            self._changed.notify_all()

    def hold(self) -> None:
        """From now on a scrape waits for a new page, and one that gets the same page again is counted."""
        with self._changed:
            self._at_once = False

    def _next(self, deadline: float) -> bytes:
        with self._changed:
            self.arrived = time.monotonic()
            while not self._fresh and not self._at_once:
                left = deadline - time.monotonic()
                if left <= 0:
                    self.repeated += 1
                    break
                self._changed.wait(left)
            self._fresh = False
            return self._page

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
