"""What the integrations share: hooks in a library's own code that can't hurt the training."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import argus
from argus.stalls.patches import Patches
from argus.torch import Handle

_log = logging.getLogger("argus.torch")


class Attached(Protocol):
    """Whoever holds what was attached."""

    handle: Handle


_Self = TypeVar("_Self", bound=Attached)
_P = ParamSpec("_P")


def guarded(method: Callable[Concatenate[_Self, _P], None]) -> Callable[Concatenate[_Self, _P], None]:
    """A hook that never raises: its failure turns tracing of the loop off, and is said in one line."""

    @functools.wraps(method)
    def safely(self: _Self, /, *args: _P.args, **kwargs: _P.kwargs) -> None:
        try:
            method(self, *args, **kwargs)
        except Exception as error:
            give_up(self.handle, f"{type(error).__name__} in {method.__name__}: {error}")

    return safely


def give_up(handle: Handle, reason: str) -> None:
    """Record nothing of the loop from now on; training goes on."""
    if handle.recorder is not None:
        handle.recorder.turn_off(reason)
    else:
        _log.warning("argus: the training loop is not traced: %s; training goes on", reason)


def pause_in(patches: Patches, owner: Any, name: str, kind: str) -> None:
    """Have every call of an object's method be a declared pause."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def paused(*args: Any, **kwargs: Any) -> Any:
            with argus.pause(kind):
                return original(*args, **kwargs)

        return paused

    patches.attribute(owner, name, make)
