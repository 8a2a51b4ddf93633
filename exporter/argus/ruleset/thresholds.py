"""Every number by which the rules decide: what it means, why it is what it is, and how to change it.

The shipped files carry these values, each marked with its name (``marks.py``);
``thresholds.yml`` explains them, and ``docs/alerts.md`` shows that as a table.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

import yaml

from argus.ruleset.durations import DURATION, parse_duration
from argus.ruleset.errors import RulesetError

_LONGEST = 30 * 86_400.0


@dataclass(frozen=True)
class Threshold:
    """One number of the rules.

    Attributes:
        name: As in the marks and on the command line.
        default: As shipped; a number, or a duration such as ``5m``.
        where: Alerts, or what else decides by it.
        meaning: What it is compared with, or how long it lasts.
        why: Where the default comes from.
        least, most: What may be given; seconds for a duration.
    """

    name: str
    default: str
    where: str
    meaning: str
    why: str
    least: float
    most: float

    @property
    def is_duration(self) -> bool:
        return re.fullmatch(DURATION, self.default) is not None

    def check(self, value: str) -> str:
        """The value, if it may be given.

        Raises:
            RulesetError: It is no number or duration, or out of range.
        """
        if self.is_duration:
            try:
                number = parse_duration(value)
            except RulesetError:
                raise RulesetError(
                    f"threshold {self.name}: {value!r} is not a duration; write it like {self.default}"
                ) from None
        else:
            if not re.fullmatch(r"(0|[1-9][0-9]*)(\.[0-9]+)?", value):
                raise RulesetError(
                    f"threshold {self.name}: {value!r} is not a number; write it like {self.default}"
                )
            number = float(value)
        if not (math.isfinite(number) and self.least <= number <= self.most):
            unit = " s" if self.is_duration else ""
            range_ = f"{self.least:g}{unit} to {self.most:g}{unit}"
            raise RulesetError(f"threshold {self.name}: {value} is out of range; take {range_}")
        return value


_RANGES = {
    "ratio": (1, 100),
    "share": (0, 1),
    "number": (0, 1e6),
    "seconds": (1, _LONGEST),
    "time": (1, _LONGEST),
}
"""Least and most by kind, where the table says nothing else."""


@cache
def table() -> dict[str, Threshold]:
    """Every threshold by name, in the order of the documentation."""
    content = (resources.files("argus.ruleset") / "thresholds.yml").read_text("utf-8")
    return {name: _threshold(name, entry) for name, entry in yaml.safe_load(content).items()}


def _threshold(name: str, entry: dict[str, str]) -> Threshold:
    least, most = _RANGES[entry["kind"]]
    return Threshold(
        name,
        entry["default"],
        entry["where"],
        entry["meaning"],
        entry["why"],
        float(entry.get("least", least)),
        float(entry.get("most", most)),
    )


def find(name: str) -> Threshold:
    """A threshold by name.

    Raises:
        RulesetError: There is none; the message names the nearest.
    """
    known = table()
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else "argus rules --thresholds lists them"
    raise RulesetError(f"there is no threshold {name!r}; {hint}")


def checked(values: Mapping[str, str]) -> dict[str, str]:
    """Those of the values that differ from the defaults, by name.

    Raises:
        RulesetError: An unknown name, or a value that can't be.
    """
    result = {}
    for name, value in values.items():
        threshold = find(name)
        if threshold.check(value) != threshold.default:
            result[name] = value
    return result


def from_pairs(pairs: Iterable[str]) -> dict[str, str]:
    """``NAME=VALUE`` texts; of one name the last counts.

    Raises:
        RulesetError: One of them is no pair.
    """
    values = {}
    for pair in pairs:
        name, equals, value = (part.strip() for part in pair.partition("="))
        if not name or not equals or not value:
            raise RulesetError(f"threshold {pair!r}: write it as name=value, such as slow_ratio=1.3")
        values[name] = value
    return values


def from_file(path: Path) -> dict[str, str]:
    """A YAML file of names and values.

    Raises:
        RulesetError: It can't be read, or is something else.
    """
    try:
        content = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise RulesetError(f"the thresholds {path} can't be read: {why}") from None
    except yaml.YAMLError as error:
        raise RulesetError(f"the thresholds {path} are no YAML: {error}") from None
    if content is None:
        return {}
    if not isinstance(content, dict) or not all(
        isinstance(name, str) and isinstance(value, (int, float, str)) and not isinstance(value, bool)
        for name, value in content.items()
    ):
        raise RulesetError(f"the thresholds {path}: write one a line, such as slow_ratio: 1.3")
    return {name: str(value) for name, value in content.items()}


def text() -> str:
    """The table for a terminal."""
    return "".join(
        f"{one.name} = {one.default}\n    {one.where}: {one.meaning}\n    {one.why}\n"
        for one in table().values()
    )


def markdown() -> str:
    """The table for the documentation."""
    rows = (
        f"| `{one.name}` | {one.default} | {one.where} | {one.meaning} | {one.why} |\n"
        for one in table().values()
    )
    return "| name | default | where | what | why |\n|---|---|---|---|---|\n" + "".join(rows)
