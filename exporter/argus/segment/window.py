"""The sliding window: a rank's last completed iterations.

It holds those iterations that ended within the last 10 s, at least 4, at most
64; below 4 there is none.  Quantiles are over the window's iterations: 0.0 is
the fastest, 0.5 the median (the mean of the middle two where their number is
even), 1.0 the slowest.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from argus.segment.state import Collective, Phase, RankState, Work

SPAN_NS = 10_000_000_000
LEAST = 4
MOST = 64

_LEAST_WORK = 1e-100
"""Less is none: quotients stay finite."""


class Spread(NamedTuple):
    """Seconds of one iteration: the fastest, the typical and the slowest."""

    fastest: float
    typical: float
    slowest: float


class CollectiveWindow(NamedTuple):
    """One collective over the window.

    Attributes:
        fastest: Seconds of the fastest occurrence.
        typical: Median over the iterations' typical occurrences, each weighted by its iteration's
            number of occurrences; seconds.
        occurrences: Per iteration, on average.
        bandwidth: Best of one occurrence in bytes per second, None where no payload is known.
    """

    fastest: float
    typical: float
    occurrences: float
    bandwidth: float | None


class WorkWindow(NamedTuple):
    """Units of work over the window, iteration by iteration.

    Attributes:
        amount: Units in the typical iteration.
        paces: For each kind of the phase that they were reported for: seconds per unit, in the fastest
            and the typical iteration; empty for the iteration's own work.
    """

    amount: float
    paces: list[tuple[Phase, tuple[float, float]]]


class Window(NamedTuple):
    """The window of one rank.

    Attributes:
        iterations: How many it holds.
        wall: Wall time of an iteration.
        busy: Union of compute and host time; None where no iteration had any.
        phases: Time per iteration spent in each phase, 0 in iterations without it; phases that took
            no time in the whole window are left out.
        collectives: Those that occurred.
        work: What was reported, if anything was in at least four of the iterations.
    """

    iterations: int
    wall: Spread
    busy: Spread | None
    phases: list[tuple[Phase, Spread]]
    collectives: list[tuple[Collective, CollectiveWindow]]
    work: list[tuple[Work, WorkWindow]]


def window(state: RankState) -> Window | None:
    """Compute the window of ``state`` at its ``now_ns``."""
    slots = state.slots[-MOST:]
    if len(slots) < LEAST:
        return None
    recent = int(np.count_nonzero(slots["end"] + np.uint64(SPAN_NS) >= np.uint64(state.now_ns)))
    slots = slots[-max(recent, LEAST) :]

    columns = [phase.index for phase in state.phases]
    table = np.column_stack((slots["wall"], slots["busy"], slots["phase"][:, columns]))
    spreads = _spreads(table)
    return Window(
        iterations=len(slots),
        wall=spreads[0],
        busy=spreads[1] if spreads[1].slowest > 0 else None,
        phases=[
            (phase, spread)
            for phase, spread in zip(state.phases, spreads[2:], strict=True)
            if spread.slowest > 0
        ],
        collectives=_collectives(state, slots),
        work=_work(state, slots),
    )


def _spreads(table: npt.NDArray[np.uint64]) -> list[Spread]:
    """Spread of each column of (iterations, columns) nanoseconds, in seconds."""
    ordered = np.sort(table, axis=0)
    n = len(ordered)
    middle = (ordered[(n - 1) // 2].astype(np.float64) + ordered[n // 2]) / 2
    triples = np.stack((ordered[0].astype(np.float64), middle, ordered[-1].astype(np.float64)), axis=1)
    return [Spread(*row) for row in _seconds(triples).tolist()]


def _seconds(nanoseconds: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    # Rounded to whole nanoseconds: nine decimals at most in the exposition.
    return np.rint(nanoseconds) / 1e9


def _work(state: RankState, slots: npt.NDArray[Any]) -> list[tuple[Work, WorkWindow]]:
    """Iterations without work or without time in the phase have no pace, and are left out of it."""
    if not state.work:
        return []
    _, left, right = np.intersect1d(slots["ordinal"], state.work_slots["ordinal"], return_indices=True)
    if len(left) < LEAST:
        return []
    seconds, amounts = slots["phase"][left], state.work_slots["amount"][right]
    result = []
    for work in state.work:
        amount = amounts[:, work.index]
        paces = []
        for phase in state.phases:
            if phase.name != work.phase or phase.kind not in ("compute", "host"):
                continue
            own = seconds[:, phase.index]
            both = (amount > _LEAST_WORK) & (own > 0)
            if np.count_nonzero(both) >= LEAST:
                pace = own[both] / amount[both] / 1e9
                paces.append((phase, (_significant(pace.min()), _significant(np.median(pace)))))
        result.append((work, WorkWindow(_significant(np.median(amount)), paces)))
    return result


def _significant(value: float) -> float:
    """To nine digits: more are noise, and compress badly."""
    return float(f"{value:.9g}")


def _collectives(state: RankState, slots: npt.NDArray[Any]) -> list[tuple[Collective, CollectiveWindow]]:
    if not state.collectives:
        return []
    columns = [collective.index for collective in state.collectives]
    records = slots["collective"][:, columns]
    weight = records["occurrences"].astype(np.float64)
    total = weight.sum(axis=0)
    fastest = np.where(weight > 0, records["fastest"].astype(np.float64), np.inf).min(axis=0)
    typical = _weighted_median(records["typical"].astype(np.float64), weight)
    bandwidth = records["best_bandwidth"].max(axis=0)
    result = []
    for i, collective in enumerate(state.collectives):
        if total[i] > 0:
            low, middle = _seconds(np.array([fastest[i], typical[i]])).tolist()
            best = float(bandwidth[i])
            result.append(
                (
                    collective,
                    CollectiveWindow(low, middle, float(total[i]) / len(slots), best if best > 0 else None),
                )
            )
    return result


def _weighted_median(
    values: npt.NDArray[np.float64], weight: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Median of each column, every value counted as often as its weight says."""
    order = np.argsort(values, axis=0)
    values = np.take_along_axis(values, order, axis=0)
    running = np.cumsum(np.take_along_axis(weight, order, axis=0), axis=0)
    half = running[-1] / 2
    low = np.argmax(running >= half, axis=0)
    high = np.minimum(np.argmax(running > half, axis=0), len(values) - 1)
    columns = np.arange(values.shape[1])
    median: npt.NDArray[np.float64] = (values[low, columns] + values[high, columns]) / 2
    return median
