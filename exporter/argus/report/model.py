"""What a report holds, before it is drawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Axis:
    """The span of a report and how its moments are named.

    Attributes:
        start, end: Unix seconds.
        step: Seconds between two values of a range query.
        iterations: Where iterations are the axis: from Unix seconds to iteration numbers.
    """

    start: float
    end: float
    step: float
    iterations: Callable[[Floats], Floats] | None = None

    def name(self, moment: float) -> str:
        """A moment in words."""
        if self.iterations is not None:
            return f"iteration {self.iterations(np.array([moment]))[0]:.0f}"
        day = np.datetime64(int(moment), "s").item()
        return f"{day:%Y-%m-%d %H:%M:%S} UTC"


@dataclass(frozen=True)
class Finding:
    """One alert that fired in the span.

    Attributes:
        labels: Its labels, ``alertname`` and ``severity`` among them.
        since: Unix seconds since which its condition held.
        until: Unix seconds of its last firing; None: it still fired at the end.
        summary, description: In words; the description may be empty.
        runbook, dashboard: Addresses, empty where none is known.
    """

    labels: dict[str, str]
    since: float
    until: float | None
    summary: str
    description: str = ""
    runbook: str = ""
    dashboard: str = ""

    @property
    def name(self) -> str:
        return self.labels["alertname"]

    @property
    def severity(self) -> str:
        return self.labels.get("severity", "info")

    @property
    def rank(self) -> str:
        return self.labels.get("rank", "")


@dataclass(frozen=True)
class Course:
    """A value through the span: Unix seconds and values."""

    times: Floats
    values: Floats


@dataclass(frozen=True)
class Ranks:
    """The ranks at the report's moment, in the order of their numbers; arrays are parallel.

    Attributes:
        numbers, roles, nodes: As text.
        places: Coordinate by name (``pp``, ``dp``, …), -1 where unknown.
        iteration, busy: Seconds per iteration, typical of the window; NaN where unknown.
        communication: Seconds per iteration in communication, waiting included; NaN where unknown.
    """

    numbers: list[str]
    roles: list[str]
    nodes: list[str]
    places: dict[str, npt.NDArray[np.int64]]
    iteration: Floats
    busy: Floats
    communication: Floats

    def __len__(self) -> int:
        return len(self.numbers)


@dataclass(frozen=True)
class PhaseTable:
    """Seconds per iteration of every rank in every compute and host phase.

    Attributes:
        names, kinds: Of the columns.
        seconds: (ranks, phases), typical of the window; NaN where a rank has no such phase.
        reference: (ranks, phases), the median of the rank's peers (of two, the faster).
    """

    names: list[str]
    kinds: list[str]
    seconds: Floats
    reference: Floats


@dataclass(frozen=True)
class Collective:
    """Seconds per iteration of every rank in one kind of collective; NaN where it takes no part."""

    op: str
    group: str
    seconds: Floats


@dataclass(frozen=True)
class Mark:
    """One of those who are compared: fastest, typical and slowest of its window, in seconds."""

    label: str
    fastest: float
    typical: float
    slowest: float


@dataclass(frozen=True)
class Comparison:
    """Somebody against its peers: typical seconds of all, and those that stand out.

    Attributes:
        title: What is compared, in words.
        values: Seconds of everybody.
        accused: Those that are accused.
    """

    title: str
    values: Floats
    accused: list[Mark]


@dataclass
class Document:
    """All that a report tells."""

    run_id: str
    source: str
    axis: Axis
    moment: float
    verdict: str
    findings: list[Finding]
    world_size: int
    iteration: Course
    slowest: Course
    ranks: Ranks
    phases: PhaseTable
    collectives: list[Collective] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)
    lost_gpu_hours: float | None = None
    slowdown: float | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def accused(self) -> list[Finding]:
        """What pages: everything but info."""
        return [finding for finding in self.findings if finding.severity != "info"]

    @property
    def onset(self) -> float | None:
        """Unix seconds at which the first accusation's condition began to hold."""
        return min((finding.since for finding in self.accused), default=None)

    @property
    def culprits(self) -> set[str]:
        """Ranks that are accused, as text."""
        return {finding.rank for finding in self.accused if finding.rank}
