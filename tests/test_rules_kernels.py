"""L3 on simulated jobs: whose kernels run differently, and who is left in peace (tests/simulation.py)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
import yaml

from argus import ruleset
from kernels_support import build, run
from simulated_kernels import QUANTILES, Kernels, Seconds, bucket, quantile
from simulation import KernelWork, Simulation, Verdict, Work

SHIFT = "ArgusKernelDistributionShift"
SHAPES = {
    "gemm": (300, 4e-3, 0.25),
    "elementwise": (120, 0.5e-3, 0.4),
    "communication_all_reduce": (40, 5e-3, 0.3),
}
"""Kernels per iteration; median in seconds and sigma of the logarithm."""
PHASES = {"data_loading": 0.04, "forward": 0.6, "backward": 1.2, "optimizer": 0.16}
"""Two seconds."""


def steady(rank: int, iteration: int, start: float) -> dict[str, float]:
    """Phases without any difference, so that only kernels can tell."""
    return PHASES


def healthy(seed: int = 0, scale: float = 1.0) -> KernelWork:
    """Every kernel of every rank drawn anew."""

    def kernels(rank: int, iteration: int, start: float) -> dict[str, np.ndarray]:
        random = np.random.default_rng((seed, rank, iteration))
        return {
            name: scale * median * np.exp(sigma * random.standard_normal(count))
            for name, (count, median, sigma) in SHAPES.items()
        }

    return kernels


def slower(kernels: KernelWork, ranks: set[int], name: str, factor: float, since: float = 0.0) -> KernelWork:
    """One class is slower as a whole."""

    def work(rank: int, iteration: int, start: float) -> Seconds:
        seconds = dict(kernels(rank, iteration, start))
        if rank in ranks and start >= since:
            seconds[name] = seconds[name] * factor
        return seconds

    return work


def tailed(kernels: KernelWork, ranks: set[int], name: str, since: float = 0.0) -> KernelWork:
    """One kernel in twenty takes three times as long, the others a little less: the sum stays."""

    def work(rank: int, iteration: int, start: float) -> Seconds:
        seconds = dict(kernels(rank, iteration, start))
        if rank in ranks and start >= since:
            long = np.where(np.arange(len(seconds[name])) % 20 == 7, 3.0, 1.0)
            changed = seconds[name] * long
            seconds[name] = changed * (seconds[name].sum() / changed.sum())
        return seconds

    return work


def judged(
    promtool: str,
    folder: Path,
    kernels: KernelWork,
    *,
    ranks: int = 8,
    until: float = 800,
    work: Work = steady,
) -> Verdict:
    simulation = Simulation()
    simulation.job(work, ranks, per_node=2, kernels=kernels)
    simulation.run(until)
    return simulation.judge(promtool, folder)


def test_a_slow_tail_at_an_unchanged_mean_names_the_rank(promtool: str, tmp_path: Path) -> None:
    before, after = healthy()(5, 3, 300), tailed(healthy(), {5}, "gemm", since=200)(5, 3, 300)
    assert after["gemm"].sum() == pytest.approx(before["gemm"].sum())
    verdict = judged(promtool, tmp_path, tailed(healthy(), {5}, "gemm", since=200))
    assert verdict.ever("rank", "kernel_class") == {(SHIFT, "warning", "5", "gemm")}
    # 70 % of seven minutes, and two minutes more; window, scrape and two evaluations beside.
    assert 200 + 400 < (verdict.first(SHIFT, "warning") or 0) <= 200 + 10 + 15 + 294 + 120 + 30


def test_a_slow_class_that_no_phase_shows(promtool: str, tmp_path: Path) -> None:
    verdict = judged(promtool, tmp_path, slower(healthy(), {2}, "elementwise", 1.4), until=600)
    assert verdict.ever("rank", "kernel_class") == {(SHIFT, "warning", "2", "elementwise")}


def test_two_of_eight_are_both_named(promtool: str, tmp_path: Path) -> None:
    verdict = judged(promtool, tmp_path, tailed(slower(healthy(), {1}, "gemm", 1.5), {6}, "gemm"), until=600)
    assert verdict.ever("rank") == {(SHIFT, "warning", "1"), (SHIFT, "warning", "6")}


def test_a_slow_half_accuses_nobody(promtool: str, tmp_path: Path) -> None:
    assert judged(promtool, tmp_path, slower(healthy(), {1, 3, 5, 7}, "gemm", 1.5), until=600).ever() == set()


@pytest.mark.parametrize("ranks", [2, 3])
def test_two_or_three_ranks_accuse_nobody(promtool: str, tmp_path: Path, ranks: int) -> None:
    kernels = slower(healthy(), {1}, "gemm", 2)
    assert judged(promtool, tmp_path, kernels, ranks=ranks, until=600).ever() == set()


def test_who_waits_in_communication_is_no_suspect(promtool: str, tmp_path: Path) -> None:
    # The late rank's are the shortest; here a single victim's are by far the longest.
    kernels = slower(healthy(), {4}, "communication_all_reduce", 6)
    assert judged(promtool, tmp_path, kernels, until=600).ever() == set()


def test_a_rank_that_is_slow_as_a_whole_gets_one_message(promtool: str, tmp_path: Path) -> None:
    def work(rank: int, iteration: int, start: float) -> dict[str, float]:
        factor = 1.8 if rank == 3 and start >= 100 else 1.0
        return {name: seconds * (factor if name == "backward" else 1) for name, seconds in PHASES.items()}

    verdict = judged(promtool, tmp_path, slower(healthy(), {3}, "gemm", 1.8, since=100), until=900, work=work)
    assert verdict.ever("rank", "phase", "kernel_class") == {
        ("ArgusComputeStraggler", "critical", "3", "backward"),
        ("ArgusComputeStraggler", "warning", "3", "backward"),
        (SHIFT, "info", "3", "gemm"),
    }


@pytest.mark.parametrize("scrape_interval", [15.0, 30.0, 60.0])
def test_all_ranks_change_speed_together(promtool: str, tmp_path: Path, scrape_interval: float) -> None:
    simulation = Simulation(scrape_interval)

    def changing(seed: int, period: float) -> KernelWork:
        normal = healthy(seed)

        def work(rank: int, iteration: int, start: float) -> Seconds:
            factor = 2.5 if (start // period) % 2 else 1.0
            return {name: seconds * factor for name, seconds in normal(rank, iteration, start).items()}

        return work

    for number, period in enumerate([60, 149, 211, 30]):
        simulation.job(steady, 5, run_id=f"r{number}", kernels=changing(number, period))
    simulation.run(1300)
    assert simulation.judge(promtool, tmp_path).ever() == set()


def test_healthy_jobs_accuse_nobody(promtool: str, tmp_path: Path) -> None:
    simulation = Simulation()
    for seed, ranks in enumerate([4, 4, 5, 8, 16]):
        simulation.job(steady, ranks, per_node=4, run_id=f"r{seed}", kernels=healthy(seed))
    simulation.run(700)
    assert simulation.judge(promtool, tmp_path).ever() == set()


def draw(seed: int) -> list[Seconds]:
    """Windows of four iterations for 4, 8 or 16 ranks, on devices that differ by up to 3 % either way."""
    random = np.random.default_rng(seed)
    return [
        {
            name: random.uniform(0.97, 1.03) * median * np.exp(sigma * random.standard_normal(4 * count))
            for name, (count, median, sigma) in SHAPES.items()
            if not name.startswith("communication")
        }
        for _ in range((4, 8, 16)[seed % 3])
    ]


def series(run_id: str, windows: list[Seconds]) -> dict[str, float]:
    """What the exporter would say of ranks with these windows."""
    found = {}
    for rank, kernels in enumerate(windows):
        own = f'run_id="{run_id}", role="pp0", rank="{rank}"'
        found |= {
            f"argus_window_iterations{{{own}}}": 4,
            f"argus_window_iteration_seconds_sum{{{own}}}": 80,
            f"argus_window_iteration_seconds_count{{{own}}}": 40,
        }
        for name, seconds in kernels.items():
            labels = f'{own}, kernel_class="{name}"'
            counts = np.bincount(bucket(seconds), minlength=258)
            found[f"argus_window_kernel_seconds_sum{{{labels}}}"] = 10 * float(seconds.sum())
            found[f"argus_window_kernel_seconds_count{{{labels}}}"] = 10 * len(seconds)
            for fraction in QUANTILES:
                key = f'argus_window_kernel_seconds{{{labels}, quantile="{fraction}"}}'
                found[key] = quantile(counts, fraction) / 1e9
    return found


def test_healthy_noise_over_many_seeds_is_below_the_threshold(promtool: str, tmp_path: Path) -> None:
    # Not even in a single window, where an alert wants three of four evaluations and two minutes more.
    (tmp_path / "argus-kernels.yml").write_text(ruleset.load()["argus-kernels.yml"])
    tests = []
    for begin in range(0, 150, 25):
        found: dict[str, float] = {}
        for seed in range(begin, begin + 25):
            found |= series(f"r{seed}", draw(seed))
        tests.append(
            {
                "interval": "1m",
                "input_series": [{"series": key, "values": repr(value)} for key, value in found.items()],
                "promql_expr_test": [
                    {"expr": "rank_class:argus_kernel_slow:ratio", "eval_time": "0s", "exp_samples": []},
                    # The rules did look: at two classes of each run.
                    {
                        "expr": "count(role_class:argus_kernel_slow_log_seconds:threshold)",
                        "eval_time": "0s",
                        "exp_samples": [{"labels": "{}", "value": 2 * 25}],
                    },
                ],
            }
        )
    document = {"rule_files": ["argus-kernels.yml"], "evaluation_interval": "1m", "tests": tests}
    file = tmp_path / "test.yml"
    file.write_text(yaml.dump(document, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper), width=10**9))
    done = subprocess.run([promtool, "test", "rules", file], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]


def test_simulated_windows_are_the_librarys() -> None:
    # The driver's job: five iterations of 90 kernels of 100 us, 9 of 1 ms, 1 of 10 ms.
    kernels = Kernels()
    for number in range(5):
        kernels.iterate(float(number), {"gemm": np.repeat([1e-4, 1e-3, 1e-2], [90, 9, 1])})
    counts = kernels.window("gemm")
    count, *expected = run(build(), "shape")["classes"]["gemm"]["window"]
    assert counts.sum() == count == 500
    assert [quantile(counts, fraction) for fraction in QUANTILES] == pytest.approx(expected, rel=1e-6)
