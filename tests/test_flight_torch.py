"""The trace of a real two-process DDP job on the CPU, taken while it runs."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from argus.cli import main
from argus.prometheus.servers import free_port
from perfetto_support import Slice, decode

pytest.importorskip("torch", reason="torch is not installed (pip install argus-gpu[torch])")

JOB = Path(__file__).with_name("flight_torch_job.py")


def lengths(slices: list[Slice], name: str) -> list[float]:
    """Seconds of the slices of this name that have ended."""
    return [(each.end - each.begin) / 1e9 for each in slices if each.name == name and each.end is not None]


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, list[Slice]]]:
    base = tmp_path_factory.mktemp("segments")
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "ARGUS_DIR": str(base),
        "ARGUS_RUN_ID": "ddp",
        "ARGUS_NODE": "here",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
    }
    processes = [
        subprocess.Popen(
            [sys.executable, str(JOB)],
            env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        for rank, process in enumerate(processes):
            assert process.stdout is not None
            assert process.stdout.readline() == f"ready {rank}\n"
        out = base / "out.pftrace.gz"
        assert (
            main(["trace", "--run", "ddp", "--ranks", "0-1", "--segments-dir", str(base), "-o", str(out)])
            == 0
        )
        first = processes[0].stdin
        assert first is not None
        first.write("stop\n")
        first.flush()
        assert [process.wait(60) for process in processes] == [0, 0]
        return decode(out.read_bytes())
    finally:
        for process in processes:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                pipe.close()


def test_both_ranks_with_their_phases(shown: dict[str, dict[str, list[Slice]]]) -> None:
    assert list(shown) == ["rank 0 (pp0, here)", "rank 1 (pp0, here)"]
    for tracks in shown.values():
        names = {each.name for name, slices in tracks.items() if name.startswith("phases") for each in slices}
        assert {"forward", "backward", "grad_sync", "optimizer"} <= names
        assert len(tracks["iterations"]) >= 10


def test_the_slow_rank_shows(shown: dict[str, dict[str, list[Slice]]]) -> None:
    victim, culprit = (tracks["phases"] for tracks in shown.values())
    assert statistics.median(lengths(culprit, "backward")) >= 0.02
    assert statistics.median(lengths(victim, "backward")) < 0.02
    assert statistics.median(lengths(victim, "grad_sync")) > 0.01, "waits for the culprit"


def test_shared_collectives_end_together(shown: dict[str, dict[str, list[Slice]]]) -> None:
    ends = [
        {each.arguments["sequence"]: each.end for each in tracks["collectives"] if each.end is not None}
        for tracks in shown.values()
    ]
    shared = ends[0].keys() & ends[1].keys()
    assert len(shared) >= 10
    apart = statistics.median(abs(ends[0][number] - ends[1][number]) for number in shared)
    assert apart < 5_000_000
