"""Two-process torch jobs without a launcher, which would import torch once more."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

TIMEOUT_S = 180


class Ranks:
    """Ranks 0 and 1 of ``python COMMAND``."""

    def __init__(self, command: Sequence[str], environment: dict[str, str]) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        common = {
            **os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHONWARNINGS": "ignore",
            "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
            **environment,
        }  # fmt: skip
        self._folder = tempfile.TemporaryDirectory()
        self._logs = [Path(self._folder.name, f"rank{rank}") for rank in (0, 1)]
        self._processes = []
        for rank, path in enumerate(self._logs):
            with path.open("wb") as log:
                environment = {**common, "RANK": str(rank), "LOCAL_RANK": str(rank)}
                self._processes.append(
                    subprocess.Popen([sys.executable, *command], env=environment, stderr=log)
                )

    @property
    def log(self) -> str:
        """What both wrote to standard error."""
        return "".join(path.read_text() for path in self._logs)

    @property
    def ended(self) -> bool:
        """Whether one of them has."""
        return any(process.poll() is not None for process in self._processes)

    def join(self, timeout: float = TIMEOUT_S) -> None:
        """Wait for the good end of both; one that fails is not waited for by the test of the other."""
        deadline = time.monotonic() + timeout
        while any(process.poll() is None for process in self._processes):
            failed = any(process.returncode for process in self._processes)
            assert not failed, self.log[-8000:]
            assert time.monotonic() < deadline, f"the job did not end: {self.log[-8000:]}"
            time.sleep(0.05)
        assert not any(process.returncode for process in self._processes), self.log[-8000:]

    def kill(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        self._folder.cleanup()


@contextmanager
def ranks(command: Sequence[str], **environment: str) -> Iterator[Ranks]:
    """Run a job of two ranks, killed at the end if it still runs."""
    running = Ranks(command, environment)
    try:
        yield running
    finally:
        running.kill()


def run_ranks(command: Sequence[str], **environment: str) -> str:
    """Run them to their good end; what they wrote to standard error."""
    with ranks(command, **environment) as running:
        running.join()
        return running.log
