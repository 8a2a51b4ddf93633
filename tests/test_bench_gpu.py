"""What of `make bench-gpu` needs no GPU: statistics, table, verdicts, and the script itself on the CPU."""

from __future__ import annotations

import random
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.gpu_training import verdict
from benchmarks.paired import Change, change, percent, table

ROOT = Path(__file__).parents[1]


def test_what_drifts_is_in_both_of_a_pair() -> None:
    # The machine becomes twice as slow on the way; the one is always 1 % slower.
    baseline = [1.0 + 0.1 * number for number in range(11)]
    found = change(baseline, [1.01 * value for value in baseline])
    assert found == pytest.approx((0.01, 0.01, 0.01, 11))


def test_the_interval_holds_the_truth_nineteen_times_in_twenty() -> None:
    held = 0
    for seed in range(200):
        draw = random.Random(seed)
        baseline = [draw.uniform(1, 2) for _ in range(25)]
        measured = [value * 1.005 * draw.lognormvariate(0, 0.02) for value in baseline]
        found = change(baseline, measured, resamples=400)
        held += found.low <= 0.005 <= found.high
        assert found.low <= found.middle <= found.high
    assert 0.90 <= held / 200 <= 0.99


def test_the_middle_is_the_median_of_the_ratios() -> None:
    ratios = [1.2, 0.9, 1.1]
    assert change([2.0, 4.0, 8.0], [2.4, 3.6, 8.8]).middle == pytest.approx(statistics.median(ratios) - 1)


@pytest.mark.parametrize(
    ("baseline", "measured"), [([1.0, 1.0], [1.0, 1.0]), ([1.0] * 3, [1.0] * 4), ([1.0, 0.0, 1.0], [1.0] * 3)]
)
def test_what_cannot_be_paired_is_refused(baseline: list[float], measured: list[float]) -> None:
    with pytest.raises(ValueError, match=r"paired|positive"):
        change(baseline, measured)


def test_text() -> None:
    assert percent(Change(0.0042, 0.001, 0.0077, 20)) == "+0.42 % (0.10 to 0.77)"
    rows = [{"mode": "argus", "s": 0.123456}, {"mode": "profiler", "s": 2.0}]
    assert table(rows) == "mode      s\nargus     0.1235\nprofiler  2"


@pytest.mark.parametrize(
    ("way", "attribution", "argus", "right", "expected"),
    [
        ("memset", "memset", {"forward": 1.0}, True, "proven"),
        ("memset", "memset", {"forward": 1.0}, False, "refuted: device seconds differ by more than 2 %"),
        ("memset", "memset", None, False, "refuted: iterations are missing"),
        ("memset", "api", {"forward": 1.0}, True, "not available here (api instead)"),
        ("auto", "call", {"forward": 1.0}, True, "proven"),
    ],
)
def test_verdict(
    way: str, attribution: str, argus: dict[str, float] | None, right: bool, expected: str
) -> None:
    found = {"attribution": attribution, "argus": argus, "within_2_percent": right}
    assert verdict(way, found) == expected


def script(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.gpu_training", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)


def test_without_a_gpu_it_says_so() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    done = script()
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "no CUDA GPU, so nothing was measured" in done.stderr


def test_rehearsal_on_the_cpu() -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    done = script("--rehearse", "--rounds", "3", "--seconds", "0.1")
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [line[:2] for line in lines if line[:1] == ["eager"]][:2] == [
        ["eager", "argus"],
        ["eager", "profiler"],
    ]
    # Phases as ARGUS tells them are those that a clock around them saw; in between the machine may be busy.
    phases = [line for line in lines if line[:2] == ["eager", "auto"]]
    assert [line[2] for line in phases] == ["forward", "backward", "optimizer"]
    for line in phases:
        assert 0.7 * float(line[3]) <= float(line[4]) <= 1.001 * float(line[3])
