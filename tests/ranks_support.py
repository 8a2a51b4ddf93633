"""Two-process torch jobs without a launcher, which would import torch once more."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

TIMEOUT_S = 180


@contextmanager
def ranks(command: Sequence[str], **environment: str) -> Iterator[list[subprocess.Popen[str]]]:
    """Ranks 0 and 1 of ``python COMMAND``, killed at the end if they still run."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    processes = [
        subprocess.Popen(
            [sys.executable, *command],
            env={
                **os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHONWARNINGS": "ignore",
                "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2",
                "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), **environment,
            },
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]  # fmt: skip
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def run_ranks(command: Sequence[str], **environment: str) -> str:
    """Run them to their good end; what they wrote to standard error."""
    with ranks(command, **environment) as processes:
        errors = [process.communicate(timeout=TIMEOUT_S)[1] for process in processes]
        for process, error in zip(processes, errors, strict=True):
            assert process.returncode == 0, error[-4000:]
    return "".join(errors)
