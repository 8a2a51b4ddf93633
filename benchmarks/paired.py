"""Statistics of measurements that were taken in turn, and their table."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Change(NamedTuple):
    """By how much one thing takes longer than another, as a share: 0.01 is 1 %.

    Attributes:
        middle: Median of the rounds.
        low, high: Its interval of 95 %.
        rounds: How many there were.
    """

    middle: float
    low: float
    high: float
    rounds: int


def change(
    baseline: Sequence[float], measured: Sequence[float], resamples: int = 4000, seed: int = 1
) -> Change:
    """Compare two series of equal length, of which each pair was measured in one round.

    What drifts (clocks, temperature, neighbours) is in both of a pair, so rounds are compared one by
    one, by the logarithm of their ratio; the interval is a percentile bootstrap over rounds.

    Args:
        baseline: Seconds of the one.
        measured: Seconds of the other.
        resamples: Of the bootstrap.
        seed: Of the bootstrap.

    Raises:
        ValueError: Fewer than three rounds, unequal lengths, or times that are not positive.
    """
    if len(baseline) != len(measured) or len(baseline) < 3:
        raise ValueError(f"{len(baseline)} and {len(measured)} rounds can't be paired; three are needed")
    if min(*baseline, *measured) <= 0:
        raise ValueError("a measured time is not positive")
    logs = [math.log(b / a) for a, b in zip(baseline, measured, strict=True)]
    draw = random.Random(seed)
    medians = sorted(statistics.median(draw.choices(logs, k=len(logs))) for _ in range(resamples))
    low, high = medians[int(0.025 * resamples)], medians[math.ceil(0.975 * resamples) - 1]
    middle = statistics.median(logs)
    return Change(*(math.expm1(value) for value in (middle, low, high)), len(logs))


def percent(value: Change) -> str:
    """``+0.42 % (0.10 to 0.77)``."""
    return f"{100 * value.middle:+.2f} % ({100 * value.low:.2f} to {100 * value.high:.2f})"


def table(rows: Sequence[Mapping[str, object]]) -> str:
    """Rows of equal keys as text in columns; numbers to four digits."""
    if not rows:
        return "nothing"
    heads = list(rows[0])
    cells = [[f"{v:.4g}" if isinstance(v, float) else str(v) for v in row.values()] for row in rows]
    widths = [max(len(line[i]) for line in (heads, *cells)) for i in range(len(heads))]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in (heads, *cells)
    )
