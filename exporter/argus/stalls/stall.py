"""Blocks around what the training loop waits for: compilations, checkpoints, rendezvous."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import CodeType
from typing import Any

from argus import _native

FIRST_ITERATIONS = 3
"""Completed iterations until which a job starts up: torch compiles forward and backward in the
first, and again where a shape turns out to change."""

_FAILURE = "{what} is not seen any more: {error}; training goes on"


class Stall:
    """A declared pause of one kind, begun and ended by the hooks of one or several libraries.

    One inside another of the same kind is a part of it.  Nothing here raises:
    the first failure turns it off, and is said once.

    Attributes:
        kind: Of the pause, or name of the phase.
        off: Whether it has given up, or was closed.
    """

    def __init__(self, kind: str, complain: Callable[[str], None]) -> None:
        """Make it in the thread of the training loop; it begins in no other.

        Args:
            kind: ``checkpoint``, ``rendezvous``, …
            complain: Is told a failure, one line.
        """
        self.kind = kind
        self.off = False
        self._complain = complain
        self._pause = _native.pause(kind)
        self._thread = threading.get_ident()
        self._open: AbstractContextManager[Any] | None = None
        self._begun = threading.Lock()

    def begin(self) -> bool:
        """Begin it where training waits, and it has not begun yet; whether it did."""
        try:
            # Threads that compute gradients may compile at the same moment.
            if self.off or not self._waits() or not self._begun.acquire(blocking=False):
                return False
        except Exception as error:
            self.fail(error)
            return False
        try:
            block = self._choose()
            block.__enter__()
            self._open = block
        except Exception as error:
            self._begun.release()
            self.fail(error)
            return False
        return True

    def end(self) -> None:
        """End what the last `begin` began."""
        block, self._open = self._open, None
        if block is None:
            return
        try:
            block.__exit__(None, None, None)
        except Exception as error:
            self.fail(error)
        self._begun.release()

    def close(self) -> None:
        """End it, and begin never again."""
        self.off = True
        self.end()

    def _choose(self) -> AbstractContextManager[Any]:
        return self._pause

    def _waits(self) -> bool:
        """Whether this is the loop's thread, or one that computes gradients for it."""
        if threading.get_ident() == self._thread:
            return True
        graph_task = getattr(getattr(sys.modules.get("torch"), "_C", None), "_current_graph_task_id", None)
        return graph_task is not None and graph_task() != -1

    def fail(self, error: Exception) -> None:
        """Give up, and say so."""
        if self.off:
            return
        self.off = True
        self._complain(_FAILURE.format(what=self.kind, error=f"{type(error).__name__}: {error}"))


class Compilation(Stall):
    """A compilation: a declared pause while the job starts up, a host phase afterwards.

    All ranks compile at the start, for minutes at times, and nobody is to blame.
    Who compiles later holds the others up.
    """

    def __init__(self, complain: Callable[[str], None]) -> None:
        super().__init__("jit_compile", complain)
        self._phase = _native.phase(self.kind)

    def _choose(self) -> AbstractContextManager[Any]:
        return self._pause if _native.status()["iterations"] < FIRST_ITERATIONS else self._phase


def around(function: Callable[..., Any], stall: Stall) -> Callable[..., Any]:
    """The function with each call inside the stall."""

    @functools.wraps(function)
    def stalled(*args: Any, **kwargs: Any) -> Any:
        begun = stall.begin()
        try:
            return function(*args, **kwargs)
        finally:
            if begun:
                stall.end()

    stalled._torchdynamo_disable = True  # type: ignore[attr-defined]  # called by a compiled function: not compiled
    return stalled


FRAMES: tuple[CodeType, ...] = tuple(
    function.__code__
    for function in (
        around(lambda: None, Stall("other", lambda _: None)),
        Stall.begin, Stall.end, Stall._waits, Stall._choose, Compilation._choose,
    )
)  # fmt: skip
"""What runs within a call; torch.compile must leave it alone."""
