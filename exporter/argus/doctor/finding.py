"""What a check found."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias


class Level(IntEnum):
    """How bad it is; a note is worth knowing and stops nothing."""

    OK = 0
    NOTE = 1
    PROBLEM = 2


@dataclass(frozen=True)
class Finding:
    """One line of the report.

    Attributes:
        level: How bad it is.
        found: What is so, in words.
        mend: What to do about it; empty where there is nothing to do.
    """

    level: Level
    found: str
    mend: str = ""


Check: TypeAlias = Callable[[], Iterable[Finding]]
"""Looks at one thing; may take long, and may raise."""


def ok(found: str) -> Finding:
    """All is well."""
    return Finding(Level.OK, found)


def note(found: str, mend: str = "") -> Finding:
    """Worth knowing."""
    return Finding(Level.NOTE, found, mend)


def problem(found: str, mend: str) -> Finding:
    """Something does not work, or will not."""
    return Finding(Level.PROBLEM, found, mend)
