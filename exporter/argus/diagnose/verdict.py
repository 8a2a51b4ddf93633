"""The verdict on a recorded trace: what the rules said, and what follows from it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from argus.diagnose.history import History
from argus.diagnose.slowdown import Culprits
from argus.severity import grave
from argus.traces import RankIteration, Table

LIVENESS = frozenset(
    (
        "ArgusRunHung",
        "ArgusHangSuspect",
        "ArgusRankDown",
        "ArgusRanksMissing",
        "ArgusExporterDown",
        "ArgusTracerDegraded",
    )
)
"""Alerts about what is alive now; a recording has no now."""


NOBODY, SOMEBODY, UNDECIDED = 0, 1, 2
"""Exit statuses."""


@dataclass(frozen=True)
class Accusation:
    """One alert that fired; ``first_iteration`` is the newest of the first window in which it held."""

    labels: dict[str, str]
    annotations: dict[str, str]
    first_iteration: int

    @property
    def name(self) -> str:
        return self.labels["alertname"]

    @property
    def severity(self) -> str:
        return self.labels.get("severity", "info")

    def json(self) -> dict[str, Any]:
        return {
            "labels": self.labels,
            "annotations": self.annotations,
            "first_iteration": self.first_iteration,
        }


@dataclass
class Verdict:
    """Everything that is told about a trace.

    Attributes:
        run_id: The run.
        ranks: Ranks recorded.
        iterations: Numbers of the iterations recorded.
        alerts: Those that fired, the gravest first.
        undecided: Those whose condition held at the end, but not yet for long enough.
        unjudged: What could not be judged, in words.
        lost_gpu_hours: Recorded lost time times the number of ranks in the run.
        slowdown: Job time over job time without the culprits' excess; None: not told.
        skipped: What was left out or noticed while reading, in words.
    """

    run_id: str
    ranks: int
    iterations: list[int]
    alerts: list[Accusation]
    undecided: list[Accusation]
    unjudged: list[str] = field(default_factory=list)
    lost_gpu_hours: float = 0.0
    slowdown: float | None = None
    skipped: list[str] = field(default_factory=list)

    @property
    def status(self) -> int:
        """Exit status: only what pages counts as an accusation."""
        if any(alert.severity != "info" for alert in self.alerts):
            return SOMEBODY
        return UNDECIDED if self.undecided else NOBODY

    def json(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        return {
            "run_id": self.run_id,
            "ranks": self.ranks,
            "iterations": len(self.iterations),
            "alerts": [alert.json() for alert in self.alerts],
            "undecided": [alert.json() for alert in self.undecided],
            "slowdown": None if self.slowdown is None else round(self.slowdown, 3),
            "lost_gpu_hours": round(self.lost_gpu_hours, 3),
            "unjudged": self.unjudged,
            "skipped": self.skipped,
        }


def accusations(history: History, iterations: list[int]) -> tuple[list[Accusation], list[Accusation]]:
    """Alerts that fired, and those that were still undecided at the end.

    ``iterations`` are the numbers by beat; a beat beyond them repeats the last.
    An undecided warning of something that has fired as critical says nothing new.
    """
    fired, undecided = [], []
    for alert in history.alerts.values():
        if alert.labels["alertname"] in LIVENESS:
            continue
        number = iterations[min(alert.since, len(iterations)) - 1]
        accusation = Accusation(alert.labels, alert.annotations, number)
        if alert.fired is not None:
            fired.append(accusation)
        elif alert.active and accusation.severity != "info":
            undecided.append(accusation)
    known = {_subject(accusation) for accusation in fired}
    undecided = [accusation for accusation in undecided if _subject(accusation) not in known]
    return sorted(fired, key=_order), sorted(undecided, key=_order)


def _subject(accusation: Accusation) -> frozenset[tuple[str, str]]:
    return frozenset((name, value) for name, value in accusation.labels.items() if name != "severity")


def _order(accusation: Accusation) -> tuple[int, int, str]:
    return grave(accusation.severity), accusation.first_iteration, str(sorted(accusation.labels.items()))


def culprits(alerts: Iterable[Accusation]) -> Culprits:
    """Whose excess the slowdown is about."""
    alerts = list(alerts)
    slow = frozenset(
        (int(alert.labels["rank"]), alert.labels["phase"])
        for alert in alerts
        if alert.name in ("ArgusComputeStraggler", "ArgusHostStall")
        and alert.labels.get("rank", "").isdigit()
    )
    return Culprits(slow, any(alert.name == "ArgusStageImbalance" for alert in alerts))


class LostTime:
    """Sums, over the iterations, the largest excess of a role's busiest rank over its median."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self.seconds = 0.0

    def watch(self, number: int, ranks: Iterable[RankIteration]) -> None:
        """Take in one iteration."""
        busy: dict[str, list[float]] = defaultdict(list)
        for rank in ranks:
            busy[self._table.ranks[rank.rank].role].append(rank.busy)
        self.seconds += max(max(values) - float(np.median(values)) for values in busy.values())


def unjudged(table: Table, counts: Mapping[int, int], least: int) -> list[str]:
    """What the rules can't judge in this trace, in words; ``counts`` are the ranks' iterations."""
    said = ["hangs, dead and missing ranks: a recording can't show them"]
    roles: dict[str, int] = defaultdict(int)
    for rank in table.ranks.values():
        roles[rank.role] += 1
    few = [number for number, count in counts.items() if count < least]
    if few:
        shown = ", ".join(map(str, few[:10])) + (", …" if len(few) > 10 else "")
        said.append(f"{len(few)} ranks with fewer than {least} iterations: {shown}")
    alone = sorted(role for role, count in roles.items() if count == 1)
    if alone:
        said.append(f"who is slow within {', '.join(alone[:10])}: one rank has no peers to compare with")
    mixed = {phase.name for phase in table.phases if phase.kind == "mixed"}
    if mixed:
        said.append(f"{', '.join(sorted(mixed))}: work and waiting are mixed there (kind mixed)")
    return said
