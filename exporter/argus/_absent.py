"""Stand-ins for the public names where the tracer can't be loaded: they do nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Iterable = TypeVar("_Iterable")

reason = ""


def explain(error: BaseException) -> None:
    """Say once why, as early as possible: nothing will be traced."""
    global reason
    if reason:
        return
    reason = f"the tracer can't be loaded ({error})"
    with suppress(Exception):  # stderr may be closed, or full
        print(
            f"argus: tracing is off: {reason}; install argus-gpu again for this Python and machine",
            file=sys.stderr,
        )


class _Nothing:
    """A context manager and decorator without effect."""

    def __enter__(self) -> _Nothing:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def __call__(self, function: _Function) -> _Function:
        return function


_NOTHING = _Nothing()


def phase(name: str, kind: str | None = None, data_dependent: bool = False) -> _Nothing:
    return _NOTHING


def collective(op: str, *_: Any, **__: Any) -> _Nothing:
    return _NOTHING


def iteration(number: int | None = None) -> _Nothing:
    return _NOTHING


def pause(kind: str) -> _Nothing:
    return _NOTHING


def work(phase: str | None = None, **units: float) -> None:
    return None


def data(iterable: _Iterable) -> _Iterable:
    return iterable


def init(**_: Any) -> None:
    return None


def finish() -> None:
    return None


def status() -> dict[str, Any]:
    return {"enabled": False, "reason": reason}
