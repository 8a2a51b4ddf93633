"""Checks what the program gives to ``argus.init()``, so that a mistake is told by its name."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

_MOST = 2**31 - 1


class ArgumentError(Exception):
    """An argument that can't be used; the message says which and what is needed."""


def number(name: str, value: Any, least: int = 0) -> int | None:
    """A whole number as an ``int``, whatever its type; None stays.

    Raises:
        ArgumentError: It is none, or out of range.
    """
    if value is None:
        return None
    try:
        found = operator.index(value)
    except TypeError:
        found = -1
    if not least <= found <= _MOST:
        raise ArgumentError(
            f"argus.init({name}={value!r:.80}) is no whole number from {least} to {_MOST}; correct the call"
        )
    return found


def text(name: str, value: Any) -> str | None:
    """A text; None stays.

    Raises:
        ArgumentError: It is something else.
    """
    if value is None or isinstance(value, str):
        return value
    raise ArgumentError(f"argus.init({name}={value!r:.80}) is not a str; correct the call")


def numbers(name: str, value: Any) -> dict[str, int] | None:
    """Whole numbers by name; None stays, and what is None is left out.

    Raises:
        ArgumentError: It is no mapping of names to numbers.
    """
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise ArgumentError(f"argus.init({name}={value!r:.80}) is not a dict of numbers; correct the call")
    found = {str(key): number(f"{name}[{key!r}]", item) for key, item in value.items()}
    return {key: item for key, item in found.items() if item is not None}
