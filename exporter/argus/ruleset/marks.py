"""Marks: which threshold a number of the rules is.

A comment ``# threshold: NAME`` at a line's end names the last number or duration before it, in PromQL
as in YAML, so that the shipped files are plain Prometheus rules and still say what may be changed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from argus.ruleset.durations import DURATION

_NUMBER = rf"(?<![\w.:])(?:{DURATION}|[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)(?![\w.:])"
_MARK = re.compile(r"^(?P<code>[^#\n]*)#\s*threshold:\s*(?P<name>\w+)\s*$", re.MULTILINE)


def marks(text: str) -> Iterator[tuple[str, str]]:
    """(name, value) of every mark.

    Raises:
        ValueError: There is no number before a mark.
    """
    for match in _MARK.finditer(text):
        yield match["name"], _last(match)[0]


def replace(text: str, value: Callable[[str, str], str]) -> str:
    """The text with every marked number replaced by ``value(name, number)``."""

    def one(match: re.Match[str]) -> str:
        number = _last(match)
        begin, end = number.start(), number.end()
        code = match["code"]
        changed = code[:begin] + value(match["name"], number[0]) + code[end:]
        return changed + match[0][len(code) :]

    return _MARK.sub(one, text)


def strip(text: str) -> str:
    """The text without its marks."""
    return _MARK.sub(lambda match: match["code"].rstrip(), text)


def _last(match: re.Match[str]) -> re.Match[str]:
    found = list(re.finditer(_NUMBER, match["code"]))
    if not found:
        raise ValueError(f"no number before the mark in {match[0]!r}")
    return found[-1]
