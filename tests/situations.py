"""Work of simulated ranks, and whom a verdict accuses (tests/simulation.py)."""

from __future__ import annotations

import random

from simulation import Verdict, Work

NORMAL = {"data_loading": 0.02, "forward": 0.3, "backward": 0.6, "optimizer": 0.08}
"""An iteration of about a second."""


def healthy(noise: float = 0.02, seed: int = 1, scale: float = 1.0) -> Work:
    random_ = random.Random(seed)

    def work(rank: int, iteration: int, start: float) -> dict[str, float]:
        return {name: seconds * scale * random_.uniform(1, 1 + noise) for name, seconds in NORMAL.items()}

    return work


def slowed(
    work: Work, ranks: set[int], phase: str, factor: float, since: float = 0.0, until: float = float("inf")
) -> Work:
    def slow(rank: int, iteration: int, start: float) -> dict[str, float]:
        times = dict(work(rank, iteration, start))
        if rank in ranks and since <= start < until:
            times[phase] *= factor
        return times

    return slow


def accused(verdict: Verdict) -> set[tuple[str, ...]]:
    """Everything that ever fired, without severities."""
    return {(alert, *labels) for alert, _, *labels in verdict.ever("rank", "phase")}
