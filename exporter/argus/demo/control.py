"""How the demo speaks to its job: one small file in each direction, replaced as a whole."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

PHASES = ("forward", "backward", "data_loading")
"""Phases that can be slowed."""

ORDER = "order.json"
REPORT = "report.json"


@dataclass(frozen=True)
class Fault:
    """Make one rank's phase longer, from now on.

    Attributes:
        rank: Global rank.
        phase: One of `PHASES`.
        factor: The phase's new duration over its normal one, at least 2.
    """

    rank: int
    phase: str
    factor: float


@dataclass(frozen=True)
class Report:
    """What the slowed rank did.

    Attributes:
        since: When the fault began (``time.time``).
        normal_seconds: The phase's normal duration, as ARGUS measured it on that rank.
        added_seconds: What is added to every occurrence of the phase.
        iteration_seconds: The normal duration of an iteration.
    """

    since: float
    normal_seconds: float
    added_seconds: float
    iteration_seconds: float


def order(directory: Path, fault: Fault) -> None:
    """Order the fault."""
    _replace(directory / ORDER, asdict(fault))


def ordered(directory: Path) -> Fault | None:
    """The fault that was ordered, if any."""
    content = _read(directory / ORDER)
    return None if content is None else Fault(**content)


def report(directory: Path, done: Report) -> None:
    """Say that the fault is there."""
    _replace(directory / REPORT, asdict(done))


def reported(directory: Path) -> Report | None:
    """What the slowed rank said, if it has."""
    content = _read(directory / REPORT)
    return None if content is None else Report(**content)


def _replace(path: Path, content: object) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(content))
    os.replace(temporary, path)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        content: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    return content
