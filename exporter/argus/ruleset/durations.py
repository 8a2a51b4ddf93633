"""Durations as Prometheus writes them, alone and inside expressions."""

from __future__ import annotations

import re
from collections.abc import Callable

from argus.ruleset.errors import RulesetError

_UNITS = {
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
    "y": 31_536_000_000,
}
DURATION = r"(?:[0-9]+(?:ms|[smhdwy]))+"
# Strings and comments are passed over, so that nothing inside them is taken for a duration.
_TOKEN = re.compile(
    r"""(?P<skip>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|`[^`]*`|\#[^\n]*)"""
    rf"""|(?P<range>\[\s*(?P<length>{DURATION})\s*(?::\s*(?P<step>{DURATION})?\s*)?\])"""
    rf"""|(?P<offset>(?<![\w:])offset\s+-?\s*)(?P<shift>{DURATION})(?!\w)""",
    re.VERBOSE | re.IGNORECASE,
)


def parse_duration(text: str) -> float:
    """Seconds of a Prometheus duration such as ``1m30s``.

    Raises:
        RulesetError: It is no duration.
    """
    if not re.fullmatch(DURATION, text):
        raise RulesetError(f"{text!r} is not a duration; write it like 15s, 1m30s or 500ms")
    return sum(int(n) * _UNITS[unit] for n, unit in re.findall(r"([0-9]+)(ms|[smhdwy])", text)) / 1000


def format_duration(seconds: float) -> str:
    """A Prometheus duration, to the millisecond and at least one of them (no zero, no fraction)."""
    left = max(1, round(seconds * 1000))
    parts = []
    for unit in ("d", "h", "m", "s", "ms"):
        count, left = divmod(left, _UNITS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)


_QUERY = re.compile(r"\{\{(?:(?!\}\}).)*\| query\b", re.DOTALL)
_RANGE = re.compile(rf"\[({DURATION})\]")


def rescale_template(annotation: str, rescale: Callable[[float], float]) -> str:
    """An annotation with ``rescale`` applied to the ranges (seconds) of its queries."""

    def ranges(query: re.Match[str]) -> str:
        return _RANGE.sub(lambda one: f"[{format_duration(rescale(parse_duration(one[1])))}]", query[0])

    return _QUERY.sub(ranges, annotation)


def rescale_expression(expression: str, rescale: Callable[[float], float]) -> str:
    """A PromQL expression with ``rescale`` applied to its ranges, subquery steps and offsets (seconds)."""

    def replace(match: re.Match[str]) -> str:
        if match["skip"] is not None:
            return match[0]

        def scaled(text: str) -> str:
            return format_duration(rescale(parse_duration(text)))

        if match["range"] is not None:
            step = "" if ":" not in match[0] else ":" + (scaled(match["step"]) if match["step"] else "")
            return f"[{scaled(match['length'])}{step}]"
        return match["offset"] + scaled(match["shift"])

    return _TOKEN.sub(replace, expression)
