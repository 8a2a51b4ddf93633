"""Recorded iterations at the time they are due."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event

from argus import _native
from argus.replay.feed import Feed
from argus.traces import Accountant, Table


def play(
    table: Table,
    feed: Feed,
    speed: float,
    stop: Event,
    shift: int,
    progress: Callable[[int, float], None],
) -> bool:
    """Feed a table once, in real time, ``speed`` times as fast as it was recorded.

    All ranks end an iteration when the slowest has.  What was recorded is
    divided by the speed, as a job would show it that really ran so fast.

    Args:
        table: The trace.
        feed: Where it goes.
        speed: Above 0.
        stop: Ends the replay between two iterations.
        shift: Added to the iterations' numbers, so that they rise from pass to pass.
        progress: Told how many iterations have ended, and the seconds that the last one took.

    Returns:
        False when it was stopped.
    """
    accountant = Accountant(table)
    due = time.monotonic()
    for position, (number, rows) in enumerate(table, 1):
        ranks = list(accountant.ranks(number, rows))
        seconds = max(rank.wall for rank in ranks) / speed
        due += seconds
        if stop.wait(max(0.0, due - time.monotonic())):
            return False
        for rank in ranks:
            rank.iteration += shift
        feed.feed(ranks, _native.monotonic_ns(), speed)
        progress(position, seconds)
    return True


def seconds(table: Table, speed: float) -> float:
    """How long one pass takes."""
    accountant = Accountant(table)
    recorded = sum(max(rank.wall for rank in accountant.ranks(number, rows)) for number, rows in table)
    return recorded / speed
