"""How much slower the job is than it would be without the culprit's excess (docs/diagnose.md).

Iterations are replayed (``schedule``) as recorded, and again with the culprit's
accused phases brought to what is normal:

- a slow rank: the median of its peers (same role) in that iteration;
- an uneven stage: every stage does the same share, the mean of all stages, since
  an even partition moves work and removes none.

The slowdown is the ratio of the two times, summed over the iterations replayed.
Where a trace does not say when things ran (Kineto, read as totals), the excess is
taken off the iteration instead.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from argus.diagnose.schedule import Iteration, totals
from argus.traces import Accountant, RankIteration, Table
from argus.traces.accounting import BUSY_KINDS, Floats

_STAGE = re.compile(r"pp[0-9]+")
_ROWS = 200_000
_ITERATIONS = 16
"""At most so many rows and iterations, spread evenly, are replayed."""


@dataclass(frozen=True)
class Culprits:
    """Who is accused of what: (rank, phase name) of slow ranks, and whether stages are uneven."""

    slow: frozenset[tuple[int, str]] = field(default_factory=frozenset)
    uneven_stages: bool = False

    def __bool__(self) -> bool:
        return bool(self.slow) or self.uneven_stages


def estimate(table: Table, culprits: Culprits, first_iteration: int) -> float | None:
    """Job time now over job time without the culprits' excess; None where it can't be told.

    Args:
        table: The trace.
        culprits: Who is accused.
        first_iteration: Iterations before it are left out.
    """
    numbers = [number for number in table.iterations if number >= first_iteration]
    if not culprits or not numbers:
        return None
    per_iteration = max(1, table.rows // max(1, len(table.iterations)))
    count = max(1, min(_ITERATIONS, _ROWS // per_iteration, len(numbers)))
    chosen = {numbers[index] for index in np.linspace(0, len(numbers) - 1, count).round().astype(int)}
    accountant = Accountant(table)
    now = without = 0.0
    for number in sorted(chosen):
        ranks = list(accountant.ranks(number, table.read(number)))
        factors = _factors(table, ranks, culprits)
        recorded, healed = _seconds(table, ranks, factors)
        now += recorded
        without += healed
    return now / without if without > 0 else None


def _seconds(
    table: Table, ranks: list[RankIteration], factors: dict[tuple[int, int], float]
) -> tuple[float, float]:
    """Seconds of an iteration as recorded, and with the accused phases times ``factors``."""
    if all(table.ranks[rank.rank].placed for rank in ranks):
        iteration = Iteration(table, ranks)
        healed = iteration.seconds(lambda rank, phase: factors.get((rank, phase), 1.0))
        return iteration.seconds(lambda rank, phase: 1.0), healed
    # Without places there is no schedule: the excess goes, but nobody gets faster than the others' busy time.
    seconds = totals(ranks)
    excess: dict[int, float] = defaultdict(float)
    for (rank, code), factor in factors.items():
        excess[rank] += _of(seconds[rank], code) * (1 - factor)
    wall = max(rank.wall for rank in ranks)
    busy = max(rank.busy - excess.get(rank.rank, 0.0) for rank in ranks)
    return wall, max(wall - max(excess.values(), default=0.0), min(busy, wall))


def _factors(table: Table, ranks: list[RankIteration], culprits: Culprits) -> dict[tuple[int, int], float]:
    """What to multiply the accused phases with, by (rank, phase)."""
    seconds = totals(ranks)
    roles: dict[str, list[int]] = defaultdict(list)
    for number in seconds:
        roles[table.ranks[number].role].append(number)
    factors: dict[tuple[int, int], float] = {}
    codes = {phase.name: code for code, phase in enumerate(table.phases) if phase.kind in BUSY_KINDS}
    for rank, name in culprits.slow:
        code = codes.get(name)
        if code is None or rank not in seconds:
            continue
        peers = [other for other in roles[table.ranks[rank].role] if other != rank]
        blamed = {other for other, phase in culprits.slow if phase == name}
        innocent = [other for other in peers if other not in blamed] or peers
        own, normal = _of(seconds[rank], code), [_of(seconds[other], code) for other in innocent]
        if own > 0 and normal:
            factors[(rank, code)] = min(1.0, float(np.median(normal)) / own)
    if culprits.uneven_stages:
        stages = {role: numbers for role, numbers in roles.items() if _STAGE.fullmatch(role)}
        for code, phase in enumerate(table.phases):
            if phase.kind == "compute":
                factors.update(_even(stages, seconds, code))
    return factors


def _even(
    stages: dict[str, list[int]], seconds: dict[int, Floats], code: int
) -> Iterable[tuple[tuple[int, int], float]]:
    typical = {
        role: float(np.median([_of(seconds[rank], code) for rank in ranks])) for role, ranks in stages.items()
    }
    if not typical or min(typical.values()) <= 0:
        return  # a phase that not every stage has is no share of the same work
    mean = sum(typical.values()) / len(typical)
    for role, ranks in stages.items():
        for rank in ranks:
            yield (rank, code), mean / typical[role]


def _of(seconds: Floats, code: int) -> float:
    return float(seconds[code]) if code < len(seconds) else 0.0
