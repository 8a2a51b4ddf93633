"""A private VictoriaMetrics and vmalert, as Debian's package `victoria-metrics` has them."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests

from argus.prometheus import Process, free_port
from exporter_support import until


class _Victoria:
    """One of its servers.

    Attributes:
        address: Host and port.
    """

    def __init__(self, name: str, folder: Path, flags: Sequence[str]) -> None:
        binary = shutil.which(name)
        assert binary is not None
        self.address = f"127.0.0.1:{free_port()}"
        self.log = folder / f"{name}.log"
        self._process = Process([binary, f"-httpListenAddr={self.address}", *flags], self.log)

    def get(self, path: str, **parameters: str) -> Any:
        """JSON of one of its pages."""
        return requests.get(f"http://{self.address}{path}", params=parameters, timeout=30).json()

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Elements of a vector now; without ``nocache`` it is that of 30 s ago."""
        found: list[dict[str, Any]] = self.get("/api/v1/query", query=expression, nocache="1")["data"][
            "result"
        ]
        return found

    def healthy(self) -> bool:
        """Whether it answers; fails when it has ended."""
        assert self._process.poll() is None, self._process.tail()
        try:
            return requests.get(f"http://{self.address}/health", timeout=5).ok
        except requests.RequestException:
            return False

    def stop(self) -> None:
        self._process.stop()


@contextmanager
def _running(name: str, folder: Path, flags: Sequence[str]) -> Iterator[_Victoria]:
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed (Debian: apt-get install victoria-metrics)")
    server = _Victoria(name, folder, flags)
    try:
        until(server.healthy, 60, pause=0.1)
        yield server
    finally:
        server.stop()


@contextmanager
def victoria_metrics(folder: Path) -> Iterator[_Victoria]:
    """A database with its usual settings."""
    with _running("victoria-metrics", folder, [f"-storageDataPath={folder / 'data'}"]) as server:
        yield server


@contextmanager
def forgetful(database: _Victoria) -> Iterator[None]:
    """The database looks for new series at once.

    It remembers for up to 10 s that there was no series of a name, which is nothing beside the 15 s
    between evaluations, but much where they are compressed.  When a series is deleted it forgets.
    """
    stop = threading.Event()

    def forget() -> None:
        number = 0
        while not stop.wait(0.4):
            sample = f'forgotten{{number="{number}"}} 1\n'
            requests.post(f"http://{database.address}/api/v1/import/prometheus", data=sample, timeout=30)
            selector = {"match[]": "forgotten"}
            requests.get(
                f"http://{database.address}/api/v1/admin/tsdb/delete_series", params=selector, timeout=30
            )
            number += 1

    thread = threading.Thread(target=forget)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextmanager
def vmalert(
    folder: Path, database: str, rules: Mapping[str, str], alertmanager: str, flush: str
) -> Iterator[_Victoria]:
    """vmalert with these rules; what it records is sent to the database every ``flush``."""
    for name, text in rules.items():
        (folder / name).write_text(text)
    flags = [
        f"-rule={folder}/argus-*.yml",
        f"-datasource.url=http://{database}",
        f"-remoteWrite.url=http://{database}",
        f"-remoteRead.url=http://{database}",
        f"-remoteWrite.flushInterval={flush}",
        f"-notifier.url=http://{alertmanager}",
    ]
    with _running("vmalert", folder, flags) as server:
        yield server
