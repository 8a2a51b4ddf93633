"""A web server for one test, and requests to it."""

from __future__ import annotations

import http.client
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from argus.exporter.exposition.classic import Classic
from argus.exporter.registry import Registry
from argus.exporter.sources import MemorySource
from argus.exporter.web.pages import Pages
from argus.exporter.web.server import Server
from argus.exporter.web.settings import Settings
from exporter_support import segment


@contextmanager
def serving(
    settings: Settings | None = None,
    *,
    registry: Registry | None = None,
    address: str = "127.0.0.1:0",
    ready: Callable[[], bool] = lambda: True,
    max_requests: int = 16,
) -> Iterator[Server]:
    pages = Pages(
        registry or Registry(MemorySource([segment(rank) for rank in range(4)])),
        telemetry_path="/metrics",
        classic=Classic.NONE,
        version="<1>",
        ready=ready,
    )
    server = Server(address, pages, settings or Settings(None), max_requests)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def request(
    server: Server,
    path: str = "/metrics",
    method: str = "GET",
    headers: dict[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
) -> tuple[http.client.HTTPResponse, bytes]:
    port = server.server_port
    connection: http.client.HTTPConnection
    if tls:
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=20, context=tls)
    else:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request(method, path, headers=headers or {})
        response = connection.getresponse()
        return response, response.read()
    finally:
        connection.close()
