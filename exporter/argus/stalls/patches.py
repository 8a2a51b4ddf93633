"""Functions that are exchanged, and put back."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

_ABSENT = object()


class Patches:
    """What was exchanged, so that it can be put back.

    Where somebody else has exchanged it again since, his stays, and what is
    called through it does nothing of its own any more.
    """

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def function(
        self, modules: Iterable[str], name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]
    ) -> bool:
        """Exchange a module's function, also where other modules hold it under the same name.

        Args:
            modules: Where it is to be found; those that are not imported are passed over.
            name: Of the function.
            make: Gives the new function for the old one.

        Returns:
            Whether there is such a function.
        """
        names = tuple(modules)
        original = next((found for found in _held(names, name)), None)
        if original is None:
            return False
        replacement = make(original)
        _exchange(names, name, original, replacement)
        self._undo.append(lambda: _exchange(names, name, replacement, original))
        return True

    def attribute(
        self, owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]
    ) -> bool:
        """Exchange a class's or an object's own function; returns whether there is one."""
        original = getattr(owner, name, None)
        if original is None:
            return False
        own = owner.__dict__.get(name, _ABSENT)
        replacement = make(original)
        setattr(owner, name, replacement)

        def undo() -> None:
            if owner.__dict__.get(name) is not replacement:
                return
            if own is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, own)

        self._undo.append(undo)
        return True

    def add(self, undo: Callable[[], None]) -> None:
        """Have something else undone."""
        self._undo.append(undo)

    def undo(self) -> None:
        """Put everything back, the last first; what can't be is left."""
        while self._undo:
            try:
                self._undo.pop()()
            except Exception:  # a module that is being taken down: nothing calls it any more
                continue


def _held(modules: Iterable[str], name: str) -> Iterable[Any]:
    for module in modules:
        found = getattr(sys.modules.get(module), name, None)
        if callable(found):
            yield found


def _exchange(modules: Iterable[str], name: str, old: Any, new: Any) -> None:
    for module in map(sys.modules.get, modules):
        if module is not None and getattr(module, name, None) is old:
            setattr(module, name, new)
