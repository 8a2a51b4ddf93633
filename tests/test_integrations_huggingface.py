"""Hugging Face Trainer and Accelerate, as documented: two ranks, of which one is slow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ranks_support import run_ranks

pytest.importorskip("torch", reason="torch is not installed (pip install argus-gpu[torch])")
pytest.importorskip("accelerate", reason="accelerate is not installed")

from importlib.util import find_spec

from integrations_support import EVALUATION, check_phases, results

JOB = Path(__file__).with_name("integrations_huggingface_job.py")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if find_spec("transformers") is None:
        pytest.skip("transformers is not installed")
    made = tmp_path_factory.mktemp("huggingface")
    run_ranks([str(JOB), str(made)], ARGUS_DIR=str(made), ARGUS_RUN_ID="huggingface")
    return made


def counts(rank: dict[str, Any], *phases: str) -> list[int]:
    return [rank["counts"][phase] for phase in phases]


PHASES = ("data_loading", "forward", "backward", "grad_sync", "optimizer")


def test_trainer(folder: Path) -> None:
    ranks = results(folder, "trainer")
    check_phases([rank["first"] for rank in ranks], forwards=2)
    for rank in ranks:
        assert (rank["active"], rank["reason"]) == (True, "")
        # 7 steps of 2 batches each; the last step is complete although no batch follows it.
        assert rank["first"]["iterations"] == 7
        assert counts(rank["first"], *PHASES) == [14, 14, 14, 7, 7]
        # Evaluations after steps 3, 6 and 7, checkpoints after 5 and 7.
        assert rank["first"]["pauses"]["evaluation"] >= 3 * EVALUATION
        assert rank["first"]["pauses"]["checkpoint"] > 0


def test_trainer_resumes(folder: Path) -> None:
    for rank in results(folder, "trainer"):
        # From step 5 to step 7, in the middle of an epoch, whose data loader is made anew.
        assert rank["steps"] == 7
        assert rank["resumed"]["iterations"] == 7 + 2
        assert counts(rank["resumed"], *PHASES) == [18, 18, 18, 9, 9]


def test_trainer_is_as_it_was(folder: Path) -> None:
    for rank in results(folder, "trainer"):
        assert rank["caught"] == []
        assert rank["stateful"] == ["TrainerControl"]
        assert rank["frames"][0] == rank["frames"][1] > 0


def test_accelerate(folder: Path) -> None:
    ranks = results(folder, "accelerate")
    check_phases([rank["trained"] for rank in ranks], forwards=2)
    for rank in ranks:
        assert (rank["active"], rank["reason"]) == (True, "")
        # 48 rows in batches of 2 on 2 ranks, 2 batches a step, 2 epochs; evaluation's batches are none.
        assert rank["trained"]["iterations"] == 12
        assert counts(rank["trained"], *PHASES[1:]) == [24, 24, 12, 12]
        assert counts(rank["trained"], "data_loading") == [24 + 2], (
            "and two at which the data was found to end"
        )
        assert rank["trained"]["pauses"]["evaluation"] >= EVALUATION, "the second one goes on"
        assert not rank["caught"]
