"""Records in numbers and in bad shape, and what becomes of them."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from kernels_support import build, run

US = 1_000


@pytest.fixture(scope="module")
def standin() -> Path:
    return build()


def test_millions_of_records_are_counted_exactly(standin: Path) -> None:
    # Of ten records, one is a copy, one a memset, eight are kernels of four classes in turn by name
    # (i % 4 in make_names); i % 10 and i % 64 together give each class a fifth.
    report = run(standin, "count", "4", "750000", "1")
    classes = {name: each["count"] for name, each in report["classes"].items()}
    assert classes == {
        "memcpy": 300_000,
        "memset": 300_000,
        "gemm": 600_000,
        "attention": 600_000,
        "communication_all_reduce": 600_000,
        "other": 600_000,
    }
    expected = 4 * sum(1000 + i % 1000 for i in range(750_000))
    total = sum(each["sum"] for each in report["classes"].values())
    assert total == expected
    assert report["source"]["events"] == 3_000_000
    assert report["source"]["dropped"] == 0


def test_what_is_lost_under_load_is_counted(standin: Path) -> None:
    report = run(standin, "count", "4", "250000", "0")
    device = report["device"]
    assert device["records"] + device["dropped_cupti"] == 1_000_000
    assert device["records"] == sum(each["count"] for each in report["classes"].values())
    assert device["memory"] <= 96 * (128 << 10)


def test_without_a_buffer_cupti_drops_and_everything_else_goes_on(standin: Path) -> None:
    report = run(standin, "exhaust")
    device = report["device"]
    assert device["memory"] == 96 * (128 << 10)
    assert device["records"] == 96 * ((128 << 10) // 208)
    assert device["dropped_cupti"] == 100_000 - device["records"]
    assert report["source"]["dropped"] == device["dropped_cupti"]


def test_bad_time_stamps(standin: Path) -> None:
    report = run(standin, "stamps")
    assert report["device"]["dropped_time"] == 20  # none at all, or the end before the start
    assert report["device"]["dropped_clock"] == 10  # an hour from now
    assert report["classes"] == {
        "gemm": {"count": 10, "sum": 10 * 5 * US, "window": [0, 0, 0, 0]},
        "memcpy": {"count": 10, "sum": 10 * 7 * US, "window": [0, 0, 0, 0]},
    }


def test_a_clock_of_ticks_that_another_profiler_left_behind(standin: Path) -> None:
    # 2.1 ticks a nanosecond: unnoticed, every kernel of 10 us would be one of 21 us.
    report = run(standin, "clock")
    gemm = report["classes"]["gemm"]
    assert report["device"]["dropped_clock"] >= 2
    assert gemm["count"] > 300
    assert gemm["sum"] == pytest.approx(gemm["count"] * 10 * US, rel=1e-3)


def test_a_name_at_a_pointer_that_was_used_before(standin: Path) -> None:
    report = run(standin, "names")
    assert {name: each["count"] for name, each in report["classes"].items()} == {
        "gemm": 10,
        "attention": 10,
        "other": 1,  # without a name
    }


def test_more_kernels_in_an_iteration_than_can_be_kept(standin: Path) -> None:
    report = run(standin, "overflow")
    device = report["device"]
    assert device["dropped_pending"] >= 300_000 - (1 << 18)
    assert device["incomplete"] + len(report["iterations"]) == 4
    assert report["iterations"][-1]["ordinal"] == 4
    assert report["iterations"][-1]["compute"]["0"] == pytest.approx(1_000_000, abs=20 * US)
    assert device["records"] == 300_001 + 3 * 5  # the histograms have them all


def test_a_long_iteration_is_accounted_for_piece_by_piece(standin: Path) -> None:
    report = run(standin, "pieces")
    assert report["device"]["dropped_pending"] == 0
    assert report["iterations"][0]["compute"]["0"] == pytest.approx(40 * 20_000 * 10, rel=0.01)
    assert report["phases"]["0"]["count"] == 40


def test_quantiles_of_the_window(standin: Path) -> None:
    # 90 % of 100 us, 9 % of 1 ms, 1 % of 10 ms: half a bucket is 4.4 %.
    report = run(standin, "shape")
    count, median, high, highest = report["classes"]["gemm"]["window"]
    assert count == 500
    assert math.log2(median / (100 * US)) == pytest.approx(0, abs=1 / 8)
    assert math.log2(high / (100 * US)) == pytest.approx(0, abs=1 / 8)
    assert math.log2(highest / 1_000_000) == pytest.approx(0, abs=1 / 8)
