"""torch.distributed's collectives in a real two-rank job on Gloo: what they leave in the segments."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ranks_support import run_ranks

pytest.importorskip("torch", reason="torch is not installed (pip install argus-gpu[torch])")

JOB = Path(__file__).with_name("torch_collectives_job.py")
LATE_S, N = 0.3, 1000
"""As in the job: rank 1's delay, and the elements of a tensor of float32."""
BYTES = 4 * N

Results = list[dict[str, dict[str, Any]]]


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> tuple[Results, str]:
    """Both ranks' results by scenario, and what was logged."""
    folder = tmp_path_factory.mktemp("collectives")
    log = run_ranks([str(JOB), str(folder / "out")], ARGUS_DIR=str(folder), ARGUS_RUN_ID="run")
    return [json.loads((folder / f"out.{rank}.json").read_text()) for rank in (0, 1)], log


@pytest.fixture(scope="module")
def results(said: tuple[Results, str]) -> Results:
    return said[0]


def test_operation_communicator_payload_and_occurrences(results: Results) -> None:
    for rank in results:
        found = rank["blocking"]["collectives"]
        gathered = found.pop("all_gather dp-0")
        # [members, nodes, occurrences, bytes]; a gathering's payload is what every rank has after it.
        assert found == {
            "all_reduce dp-0": [2, 1, 1, BYTES],
            "reduce_scatter dp-0": [2, 1, 1, 2 * BYTES],
            "broadcast dp-0": [2, 1, 1, BYTES],
            "barrier dp-0": [2, 1, 2, 0],
        }
        # Once into one tensor, once into a list, and twice for an object: its size, then itself.
        assert gathered[:3] == [2, 1, 4]
        assert 4 * BYTES < gathered[3] < 4 * BYTES + 1000


def test_waiting_for_a_late_rank_is_communication(results: Results) -> None:
    for scenario, name in (
        ("blocking", "all_reduce"), ("asynchronous", "all_reduce"), ("pairs", "recv"),
        ("functionals", "wait_tensor"),
    ):  # fmt: skip
        kind, _, waited = results[0][scenario]["phases"][name]
        assert kind == "communication"
        assert waited > LATE_S / 3  # on a busy machine rank 0 may be late itself


def test_only_operations_that_were_seen_from_begin_to_end_have_a_duration(results: Results) -> None:
    for rank in results:
        found = rank["asynchronous"]
        assert found["sum"] == 2 * N
        # Two were waited for, the first when it had gone on for long; the third was never waited for.
        assert found["phases"]["all_reduce"][1] == 2
        assert found["collectives"].get("all_reduce dp-0", [2, 1, 0, 0])[2] <= 1


def test_sends_and_receives_belong_to_pairs(results: Results) -> None:
    # Rank 0 receives twice, once from anybody, which is a wait and of no pair, and sends once.
    occurrences = ({"recv": 2, "send": 1}, {"recv": 1, "send": 2})
    of_pair = ({"recv": 1, "send": 1}, {"recv": 1, "send": 2})
    for rank, result in enumerate(results):
        found = result["pairs"]
        for op in ("send", "recv"):
            assert found["phases"][op][:2] == ["communication", occurrences[rank][op]]
            if f"{op} dp-0-1" in found["collectives"]:  # on a busy machine they may not be waited for at once
                members, nodes, count, payload = found["collectives"][f"{op} dp-0-1"]
                assert (members, nodes) == (2, 1)
                assert count <= of_pair[rank][op]
                assert payload == count * BYTES
        assert found["pair"] == [3, 3]


def test_every_rank_counts_the_same_operations(results: Results) -> None:
    for scenario, first in results[0].items():
        second = results[1][scenario]
        assert first["sequence"][0] == second["sequence"][0] > 0
        assert first["settled"] == second["settled"]
        enqueued, completed = first["settled"]
        assert enqueued == completed >= first["sequence"][0]


def test_operations_of_groups_that_were_destroyed_stay_counted(results: Results) -> None:
    assert results[0]["groups"]["collectives"]["all_reduce dp-0"] == [2, 1, 2, 2 * BYTES]
    # A group of one rank is none.
    assert set(results[0]["groups"]["collectives"]) == {"all_reduce dp-0", "barrier dp-0"}
    # Every scenario has a barrier at least; point-to-point operations make Gloo's numbers useless.
    numbers = [found["sequence"][0] for name, found in results[0].items() if name != "pairs"]
    assert sorted(set(numbers)) == numbers


def test_functional_collectives_compile_into_as_many_graphs_and_have_gradients(results: Results) -> None:
    for rank in results:
        found = rank["functionals"]
        assert found["eager"] == N  # zeros summed, plus 1
        assert found["compiled"] == 4 * (2 * 2 * 2 + 1)  # ones reduced in place, doubled, reduced, plus 1
        assert found["gradient"] == [6.0] * 4  # 3, from both ranks
        assert found["graphs"][0] == found["graphs"][1] == 1


def test_what_cpp_calls_is_counted_too(results: Results) -> None:
    for rank in results:
        before = rank["functionals"]["settled"][0] + 1  # to settle takes an operation itself
        # A barrier, and a bucket in each of three backward passes.
        assert rank["reducer"]["sequence"][0] - before >= 1 + 3
        assert "all_reduce dp-0" not in rank["reducer"]["collectives"]


def test_exceptions_pass_and_the_wait_is_told(results: Results) -> None:
    found = results[0]["failing"]
    assert found["raised"] == "RuntimeError"
    assert found["phases"]["all_reduce"][:2] == ["communication", 2]


def test_a_failure_inside_turns_off_what_failed_and_is_said_once(said: tuple[Results, str]) -> None:
    for rank in said[0]:
        found = rank["broken"]
        assert found["sum"] == 2 * N
        assert found["off"]
        assert not any(count for _, count, _ in found["phases"].values())
    assert said[1].count("collectives are not traced any more") == 2


def test_torchs_flight_record_of_a_standstill_can_be_read_by_torchs_tool(said: tuple[Results, str]) -> None:
    for rank, result in enumerate(said[0]):
        found = result["standing"]
        assert found["rank"] == rank
        assert found["last"] == ["gloo:all_reduce", "default_pg"]
        assert not found["early"]
        assert not found["again"]
    assert said[1].count("torch's flight record is in") == 2


def test_payload_of_what_is_not_dense() -> None:
    """Three of a sparse vector: 24 bytes of indices, 12 of values."""
    import torch

    from argus.torch.operations import payload

    dense = torch.tensor([1.0, 0.0, 2.0, 3.0])
    assert payload([[dense], "x"]) == 16
    assert payload([[dense.to_sparse()]]) == 36
