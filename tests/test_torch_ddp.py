"""argus.torch in a real two-process DDP job, one rank slow in its own backward pass."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed (pip install argus-gpu[torch])")

JOB = Path(__file__).with_name("torch_job.py")
QUICK, SLOW, ITERATIONS = 0.02, 0.12, 5
OFTEN = ITERATIONS + 1


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What the two ranks of torch_job.py measured, by scenario."""
    directory = tmp_path_factory.mktemp("ddp")
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "ARGUS_DIR": str(directory),
        "ARGUS_RUN_ID": "test",
    }
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
        str(JOB), str(directory / "out"),
    ]  # fmt: skip
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads((directory / f"out.{rank}.json").read_text()) for rank in (0, 1)]


def _typical(result: dict[str, Any], phase: str) -> float:
    return statistics.median(result["seconds"][phase])


@pytest.mark.parametrize("scenario", ["plain", "static graph", "unused"])
def test_the_slow_rank_computes_and_the_other_waits(scenario: str, ranks: list[dict[str, Any]]) -> None:
    victim, culprit = (rank[scenario] for rank in ranks)
    assert SLOW <= _typical(culprit, "backward") < SLOW + 0.05
    assert QUICK <= _typical(victim, "backward") < QUICK + 0.05
    assert _typical(victim, "grad_sync") > SLOW - QUICK - 0.03
    assert _typical(culprit, "grad_sync") < 0.03
    for result in (victim, culprit):
        assert len(result["seconds"]["forward"]) == ITERATIONS
        assert result["kinds"] == {
            "forward": "compute", "backward": "compute", "grad_sync": "communication", "optimizer": "compute",
        }  # fmt: skip
        assert result["counts"] == dict.fromkeys(result["kinds"], OFTEN)


def test_only_synchronised_backwards_have_a_grad_sync(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        result = rank["accumulation"]
        assert len(result["seconds"]["forward"]) == ITERATIONS
        assert result["counts"]["forward"] == result["counts"]["backward"] == 2 * OFTEN
        assert result["counts"]["grad_sync"] == result["counts"]["optimizer"] == OFTEN


def test_broadcasting_buffers_is_communication_not_forward(ranks: list[dict[str, Any]]) -> None:
    # Rank 0, from which the buffers come, starts 20 ms later, and rank 1 waits for them.
    result = ranks[1]["buffers"]
    assert result["kinds"]["buffer_sync"] == "communication"
    assert _typical(result, "buffer_sync") > QUICK / 2 > _typical(result, "forward")


@pytest.mark.parametrize("scenario", ["compiled inside", "compiled outside", "compiled later"])
def test_compiled_models_keep_one_graph_and_are_traced(scenario: str, ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        result = rank[scenario]
        assert result["frames"] == 1
        assert result["counts"] == dict.fromkeys(("forward", "backward", "grad_sync", "optimizer"), OFTEN)
