"""Serves a book's pages to Prometheus, each at its time, from one small process."""

from __future__ import annotations

import asyncio
import mmap
import multiprocessing
import multiprocessing.connection
import time
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from benchmarks.scale.pages import Book

_EMPTY = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: 0\r\n\r\n"
_NOT_FOUND = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"


@dataclass
class _Show:
    """A book, when it begins (``time.time``), and which of its pages come one after the other."""

    book: Book
    begin: float
    order: list[int]


class _Pages:
    """What is served now, and when each target was scraped last."""

    def __init__(self, count: int) -> None:
        self.seen = np.full(count, np.nan)
        self._show: _Show | None = None
        self._bytes: mmap.mmap | bytes = b""
        self._head = b""

    def show(self, show: _Show) -> None:
        self._show = show
        with show.book.path.open("rb") as file:
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        kind = show.book.content_type
        self._head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Encoding: gzip\r\n".encode()

    def answer(self, target: int) -> bytes:
        now = time.time()
        self.seen[target] = now
        show = self._show
        if show is None:
            return _EMPTY
        number = round((now - show.begin - show.book.offsets[target]) / show.book.interval)
        if not 0 <= number < len(show.order):
            return _EMPTY
        start, length = show.book.index[target, show.order[number]].tolist()
        return b"%sContent-Length: %d\r\n\r\n%s" % (
            self._head, length, self._bytes[start : start + length],
        )  # fmt: skip


class _Connection(asyncio.Protocol):
    """One connection, kept open: requests are ``GET /<number of the target>``."""

    def __init__(self, pages: _Pages) -> None:
        self._pages, self._received = pages, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while b"\r\n\r\n" in self._received:
            request, _, self._received = self._received.partition(b"\r\n\r\n")
            path = request.split(b" ", 2)[1][1:]
            known = path.isdigit() and int(path) < len(self._pages.seen)
            self._transport.write(self._pages.answer(int(path)) if known else _NOT_FOUND)  # type: ignore[attr-defined]


async def _serve(count: int, pipe: multiprocessing.connection.Connection) -> None:
    pages = _Pages(count)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(pages), "127.0.0.1", 0, backlog=1024)
    pipe.send(server.sockets[0].getsockname()[1])
    done = loop.create_future()

    def told() -> None:
        try:
            order = pipe.recv()
        except EOFError:
            done.set_result(None)
            loop.remove_reader(pipe.fileno())
            return
        if order == "seen":
            pipe.send(pages.seen)
        else:
            pages.show(order)

    loop.add_reader(pipe.fileno(), told)
    await done
    server.close()


def _run(count: int, pipe: multiprocessing.connection.Connection) -> None:
    asyncio.run(_serve(count, pipe))


class Server:
    """The server's process; a context manager.

    Attributes:
        port: On 127.0.0.1; target n is at ``/n``.
        pid: Its process.
    """

    def __init__(self, count: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_run, args=(count, theirs), daemon=True)
        self._process.start()
        theirs.close()
        self.port: int = self._pipe.recv()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def seen(self) -> np.ndarray:
        """When each target was scraped last (``time.time``); NaN: not yet."""
        self._pipe.send("seen")
        seen: np.ndarray = self._pipe.recv()
        return seen

    def show(self, book: Book, begin: float, order: Iterable[int] | None = None) -> None:
        """Serve this book from ``begin`` on (``time.time``), then empty pages.

        ``order`` are the numbers of the pages, scrape by scrape: from the first to the last where None.
        """
        self._pipe.send(_Show(book, begin, list(range(book.scrapes) if order is None else order)))

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe.close()
        self._process.join(10)
        if self._process.is_alive():
            self._process.terminate()
            self._process.join()
