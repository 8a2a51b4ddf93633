"""DeepSpeed's engine, as documented: two ranks, of which one is slow."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from ranks_support import run_ranks

pytest.importorskip("torch", reason="torch is not installed (pip install argus-gpu[torch])")

from integrations_support import EVALUATION, check_phases, results

JOB = Path(__file__).with_name("integrations_deepspeed_job.py")


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    if find_spec("deepspeed") is None:
        pytest.skip("deepspeed is not installed")
    folder = tmp_path_factory.mktemp("deepspeed")
    run_ranks([str(JOB), str(folder)], ARGUS_DIR=str(folder), ARGUS_RUN_ID="deepspeed")
    return results(folder, "deepspeed")


@pytest.mark.parametrize("stage", [1, 3])
def test_the_engine(stage: int, ranks: list[dict[str, Any]]) -> None:
    found = [rank[f"stage {stage}"] for rank in ranks]
    check_phases(found, forwards=2)
    for rank in found:
        assert (rank["active"], rank["reason"]) == (True, "")
        # 32 rows in batches of 2 on 2 ranks, 2 batches a step, 2 epochs.
        assert rank["iterations"] == rank["steps"] == 8
        assert [rank["counts"][phase] for phase in ("forward", "backward", "optimizer")] == [16, 16, 8]
        assert rank["pauses"]["evaluation"] >= EVALUATION, "after the first epoch; the last goes on"
        assert not rank["caught"]


def test_as_many_graphs_as_without(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        assert rank["frames"][0] == rank["frames"][1] > 0
