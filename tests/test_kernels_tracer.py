"""The kernel tracer, driven through the callbacks that it registers with a stand-in for CUPTI.

What the driver's small job does is described in ``tests/standin/job.cpp``; the expected numbers follow
from that description by hand.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernels_support import OUTSIDE, build, run

MS = 1_000_000
US = 1_000
MEMSET, CALL, API, NONE = 2, 3, 4, 1
KINDS = sum(1 << kind for kind in (10, 1, 2, 17))
"""Activity kinds below 32 that are enabled: kernels, copies, memsets, overhead; never 3, which serializes."""


@pytest.fixture(scope="module")
def standin() -> Path:
    return build()


def close(value: float, expected: float, tolerance: float = 20 * US) -> bool:
    """The tolerance is what two clocks, read one after the other, may differ by on a busy machine."""
    return abs(value - expected) <= tolerance


def assert_job(report: Any, iterations: int, attributed: bool = True) -> None:
    """Each iteration: forward 1.0 ms, backward 1.4 ms, NCCL 1.0 ms, a copy of 0.1 ms outside."""
    assert len(report["iterations"]) == iterations
    for iteration in report["iterations"]:
        compute, communication = iteration["compute"], iteration["communication"]
        assert iteration["attributed"] == attributed
        assert close(iteration["idle"], 1.0 * MS)
        assert close(iteration["busy"], 3.5 * MS)
        if attributed:
            assert set(compute) == {"0", "1", OUTSIDE}
            assert close(compute["0"], 1.0 * MS)
            assert close(compute["1"], 1.4 * MS)
            assert close(compute[OUTSIDE], 0.1 * MS)
            assert communication.keys() == {"2"}
            assert close(communication["2"], 1.0 * MS)
        else:
            assert set(compute) == set(communication) == {OUTSIDE}
            assert close(compute[OUTSIDE], 2.5 * MS)


@pytest.mark.parametrize("late", [(), ("late",)])
@pytest.mark.parametrize(
    ("name", "number", "told"),
    [("auto", MEMSET, 9), ("memset", MEMSET, 9), ("call", CALL, 9), ("api", API, 8)],
)
def test_every_attribution(standin: Path, name: str, number: int, told: int, late: tuple[str, ...]) -> None:
    # The records of launches are enabled with the first kernel, so the first iteration lacks some.
    report = run(standin, "attribution", "9", *late, ARGUS_KERNEL_ATTRIBUTION=name)
    assert report["device"]["attribution"] == number
    assert report["device"]["incomplete"] == 9 - told
    assert report["source"]["dropped"] == 0
    assert_job(report, told)
    assert report["phases"]["0"]["count"] == report["phases"][OUTSIDE]["count"] == told
    assert close(report["phases"]["1"]["sum"], told * 1.4 * MS, told * 20 * US)
    assert report["standin"]["enabled"] & KINDS == KINDS
    assert not report["standin"]["enabled"] & 1 << 3
    assert bool(report["standin"]["memsets"]) == (number == MEMSET)


def test_no_attribution_still_tells_idleness(standin: Path) -> None:
    report = run(standin, "attribution", "6", ARGUS_KERNEL_ATTRIBUTION="none")
    assert report["device"]["attribution"] == NONE
    assert report["standin"]["memsets"] == 0
    assert_job(report, 6, attributed=False)


def test_a_cupti_without_filtered_calls_falls_back_to_all_records() -> None:
    old = build(old=True)
    assert run(old, "deaf")["device"]["attribution"] == API
    report = run(old, "attribution", "4", ARGUS_KERNEL_ATTRIBUTION="call")
    assert report["device"]["attribution"] == NONE


def test_correlation_ids_wrap(standin: Path) -> None:
    for name in ("memset", "call", "api"):
        report = run(standin, "wrap", ARGUS_KERNEL_ATTRIBUTION=name)
        assert_job(report, 7 if name == "api" else 8)
        assert report["device"]["dropped_late"] == 0


def test_marks_that_leave_no_record_are_given_up(standin: Path) -> None:
    # First the memsets, then the calls of one function; the records of launches remain.
    report = run(standin, "deaf")
    assert report["device"]["attribution"] == API
    assert_job(report, len(report["iterations"]))
    assert report["device"]["incomplete"] >= 16


def test_a_driver_that_refuses_marks_is_given_up(standin: Path) -> None:
    report = run(standin, "broken")
    assert report["device"]["attribution"] == CALL
    assert report["device"]["incomplete"] in (1, 2)
    assert_job(report, 12 - report["device"]["incomplete"])


@pytest.mark.parametrize("where", [(), ("legacy",)])
def test_no_mark_while_a_graph_is_captured(standin: Path, where: tuple[str, ...]) -> None:
    # torch says so, or the driver about the legacy stream; 4 has no marks, and so 5 no beginning.
    report = run(standin, "capture", *where)
    assert report["device"]["attribution"] == MEMSET
    assert [each["ordinal"] for each in report["iterations"]] == [1, 2, 3, 6, 7, 8, 9, 10]
    assert report["standin"]["memsets"] == report["device"]["marks"] == 1 + 9 * 9
    assert_job(report, 8)


@pytest.mark.parametrize("code", ["999", "15"])
def test_without_a_driver_nothing_happens(standin: Path, code: str) -> None:
    report = run(standin, "result", code)
    assert report["state"] == 0
    assert "no NVIDIA driver" in report["message"]
    assert code in report["message"]
    assert report["standin"]["enabled"] == 0
    assert report["stderr"] == ""


def test_another_profiler_is_in_the_way(standin: Path) -> None:
    report = run(standin, "refused", "39")
    assert report["state"] == 0
    assert "nsys" in report["message"]
    assert report["standin"]["enabled"] == 0


def test_a_process_that_never_touches_the_gpu(standin: Path) -> None:
    report = run(standin, "idle")
    assert report["state"] == 1
    assert report["iterations"] == []
    assert report["device"]["marks"] == report["device"]["memory"] == report["standin"]["flushes"] == 0


def test_torch_profiler_takes_the_callbacks_and_says_so(standin: Path) -> None:
    report = run(standin, "profiler", "1")
    assert report["standin"]["registrations"] == 2
    assert report["device"]["gaps"] == 1
    assert report["device"]["gap"] > 10 * MS
    ordinals = [each["ordinal"] for each in report["iterations"]]
    assert ordinals[:5] == [1, 2, 3, 4, 5]
    assert not set(ordinals) & {6, 7, 8, 9, 10}
    assert ordinals[-5:] == [12, 13, 14, 15, 16]
    assert_job(report, len(ordinals))


def test_a_profiler_that_says_nothing_is_noticed_by_the_silence(standin: Path) -> None:
    report = run(standin, "profiler", "0", ARGUS_KERNEL_QUIET_SECONDS="0.2")
    assert report["standin"]["registrations"] == 2
    assert report["device"]["gaps"] == 1
    assert report["device"]["gap"] >= 200 * MS
    assert report["device"]["attribution"] == MEMSET
    # Nothing is told of the time without records: idleness would be a lie.
    assert_job(report, len(report["iterations"]))
    assert report["phases"][OUTSIDE]["count"] in (10, 11)


def test_forked_children_trace_nothing(standin: Path) -> None:
    report = run(standin, "forked")
    assert_job(report, 6)
    assert report["standin"]["registrations"] == 1


def test_records_from_before_the_tracer_are_counted(standin: Path) -> None:
    report = run(standin, "injected")
    assert report["classes"]["gemm"]["count"] == 1000 + 4 * 3
    assert report["standin"]["registrations"] == 1
    assert_job(report, 4)


def test_a_second_tracer_begins_with_nothing(standin: Path) -> None:
    report = run(standin, "again")
    assert report["classes"]["gemm"]["count"] == 3 * 3
    assert report["source"]["events"] == report["device"]["records"] == 3 * 5
    assert [each["ordinal"] for each in report["iterations"]] == [2, 3, 4]
    assert_job(report, 3)


def test_several_devices_and_contexts(standin: Path) -> None:
    # Streams 7 and 9 are of one device, 8 is of the other: each second still counts once.  Marks stay in the
    # context that they began in.
    report = run(standin, "contexts")
    assert report["device"]["attribution"] == MEMSET
    assert report["device"]["incomplete"] == 0
    assert report["standin"]["pushes"] >= 4 * 4
    assert_job(report, 6)


def test_declared_pauses_belong_to_nobody(standin: Path) -> None:
    # 4 ms with a pause from 1 to 3; kernels from 0 to 1 and from 3 to 3.5, and in the pause.
    report = run(standin, "paused")
    last = report["iterations"][-1]
    assert last["compute"].keys() == {"0"}
    assert close(last["compute"]["0"], 1.5 * MS)
    assert close(last["idle"], 0.5 * MS)
    assert close(last["busy"], 2.0 * MS)


def test_jit_and_overhead_records(standin: Path) -> None:
    report = run(standin, "own")
    assert close(report["device"]["jit"], 3 * MS, US)
    assert close(report["iterations"][0]["jit"], 3 * MS, US)
    # CUPTI's own overhead is the tracer's cost; loading the program's modules is not.
    assert 500 * MS <= report["source"]["cost"] < 600 * MS
