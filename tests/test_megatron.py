"""argus.megatron with Megatron-Core's own schedules, DDP, optimizer and timers: two ranks, no GPU."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest

from ranks_support import run_ranks

pytest.importorskip("torch", reason="torch is not installed (pip install argus-gpu[torch])")
pytest.importorskip("megatron.core", reason="megatron-core is not installed", exc_type=ImportError)

JOB = Path(__file__).with_name("megatron_job.py")
QUICK, SLOW, MICROBATCHES, ITERATIONS = 0.005, 0.03, 4, 6
"""As in the job: seconds of one forward pass on rank 0 and on rank 1."""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[dict[str, Any]]]:
    """What both ranks measured, by number of pipeline stages."""
    folder = tmp_path_factory.mktemp("megatron")
    run_ranks([str(JOB), str(folder / "out")], ARGUS_DIR=str(folder), ARGUS_RUN_ID="megatron")
    ranks = [json.loads((folder / f"out.{rank}.json").read_text()) for rank in (0, 1)]
    return {stages: [rank[str(stages)] for rank in ranks] for stages in (1, 2)}


def _typical(result: dict[str, Any], phase: str) -> float:
    return statistics.median(result["seconds"][phase])


@pytest.mark.parametrize("stages", [1, 2])
def test_the_slow_rank_computes_and_the_other_waits(
    stages: int, results: dict[int, list[dict[str, Any]]]
) -> None:
    victim, culprit = results[stages]
    assert MICROBATCHES * SLOW <= _typical(culprit, "forward") < MICROBATCHES * SLOW + 0.05
    assert MICROBATCHES * QUICK <= _typical(victim, "forward") < MICROBATCHES * QUICK + 0.05
    for phase in ("backward", "optimizer"):
        assert _typical(victim, phase) < 0.02
    waits = [name for name, kind in victim["kinds"].items() if kind == "communication"]
    assert sum(_typical(victim, name) for name in waits) > MICROBATCHES * (SLOW - QUICK) - 0.03


@pytest.mark.parametrize("stages", [1, 2])
def test_iterations_and_phases_are_those_of_megatron(
    stages: int, results: dict[int, list[dict[str, Any]]]
) -> None:
    for result in results[stages]:
        assert result["reason"] == ""
        assert result["untouched"]
        # The last call of the schedule only ends the iteration before, and the evaluation is none.
        assert result["iterations"] == len(result["seconds"]["forward"]) == ITERATIONS
        trained = MICROBATCHES * (ITERATIONS + 1)
        for phase in ("forward", "backward", "data_loading"):
            assert result["counts"][phase] == trained
        assert result["counts"]["grad_sync"] == ITERATIONS + 1
        assert result["counts"]["optimizer"] == ITERATIONS
        kinds = {
            "forward": "compute", "backward": "compute", "optimizer": "compute", "data_loading": "host",
            "grad_sync": "communication",
        }  # fmt: skip
        assert kinds.items() <= result["kinds"].items()


def test_who_a_rank_is_comes_from_the_parallel_state(results: dict[int, list[dict[str, Any]]]) -> None:
    for rank in (0, 1):
        copy, stage = results[1][rank], results[2][rank]
        assert copy["coordinates"] == {"dp": rank, "tp": 0, "pp": 0, "cp": 0, "ep": 0, "role": "pp0"}
        assert stage["coordinates"] == {"dp": 0, "tp": 0, "pp": rank, "cp": 0, "ep": 0, "role": f"pp{rank}"}
        assert copy["communicators"] == ["dp-0"]
        assert stage["communicators"] == ["pp-0", "pp-0-1"]
