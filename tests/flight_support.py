"""Ranks, an exporter and deliveries of alerts, for the tests of the exporter's flight recorder."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from argus.exporter.lifecycle import FileSource
from argus.exporter.service import Exporter, Options, SnapshotOptions
from native_support import environment, wait_for

JOB = """
import sys, time
import argus
rank, world, pace = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
argus.init(run_id=sys.argv[4], rank=rank, world_size=world, node="node-a")
print("ready", flush=True)
while True:
    with argus.iteration():
        with argus.phase("forward"):
            time.sleep(pace)
        with argus.collective("all_reduce", bytes=64):
            time.sleep(0.001)
"""


@contextmanager
def job(base: Path, paces: Sequence[float], run_id: str = "run") -> Iterator[list[subprocess.Popen[str]]]:
    """Ranks, each with a process of its own, whose iterations take so many seconds."""
    processes = []
    try:
        for rank, pace in enumerate(paces):
            arguments = [str(rank), str(len(paces)), str(pace), run_id]
            processes.append(
                subprocess.Popen(
                    [sys.executable, "-c", JOB, *arguments],
                    env=environment(base),
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        yield processes
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


@contextmanager
def four_ranks(directory: Path) -> Iterator[Path]:
    """Four ranks of one run that go on all the time, rank 2 the slowest; several iterations are done."""
    with job(directory, [0.002, 0.002, 0.02, 0.0025]):
        with closing(FileSource(directory)) as source:
            wait_for(lambda: all_have_windows(source), "windows")
        yield directory


def all_have_windows(source: FileSource) -> bool:
    from argus._native import monotonic_ns

    ranks = source.scan(monotonic_ns()).ranks
    return len(ranks) == 4 and all(rank.state.window() is not None for rank in ranks)


@contextmanager
def exporter(base: Path, directory: Path, **options: Any) -> Iterator[Exporter]:
    snapshots = SnapshotOptions(directory / "snapshots", **options.pop("snapshots", {}))
    made = Options(addresses=("127.0.0.1:0",), segments=base, snapshots=snapshots)
    with Exporter(Options(**{**made.__dict__, **options})) as running:
        yield running


def ask(
    running: Exporter, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
) -> tuple[int, bytes, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", running.servers[0].server_port, timeout=30)
    try:
        if body is not None:
            headers = {"Content-Type": "application/json", **(headers or {})}
        connection.request("GET" if body is None else "POST", path, body, headers or {})
        response = connection.getresponse()
        return response.status, response.read(), dict(response.headers)
    finally:
        connection.close()


def delivery(*alerts: tuple[str, str, str], status: str = "firing") -> bytes:
    """As Alertmanager sends it: alert name, run, rank each."""
    return json.dumps(
        {
            "version": "4",
            "status": status,
            "alerts": [
                {
                    "status": status,
                    "labels": {"alertname": name, "run_id": run, "rank": rank, "severity": "critical"},
                }
                for name, run, rank in alerts
            ],
        }
    ).encode()


def snapshots(directory: Path) -> list[Path]:
    return sorted((directory / "snapshots").glob("*")) if (directory / "snapshots").exists() else []
