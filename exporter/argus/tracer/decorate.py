"""Phases, collectives, iterations and pauses as decorators."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from typing import Any


def wrap(block: AbstractContextManager[Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` with each call inside ``block``.

    A coroutine function counts from its first step to its end, awaiting
    included; a generator counts each step, not the time between them; an
    asynchronous generator is left as it is.

    Raises:
        TypeError: ``function`` can't be called.
    """
    if not callable(function):
        raise TypeError(f"a decorator takes the function, not {function!r}")
    if inspect.isasyncgenfunction(function):
        return function
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            with block:
                return await function(*args, **kwargs)

        return awaited
    if inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def generated(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            return (yield from _Steps(block, function(*args, **kwargs)))

        return generated

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        with block:
            return function(*args, **kwargs)

    return called


class _Steps(Generator[Any, Any, Any]):
    """A generator whose steps are each inside a block."""

    def __init__(self, block: AbstractContextManager[Any], generator: Generator[Any, Any, Any]) -> None:
        self._block = block
        self._generator = generator

    def send(self, value: Any) -> Any:
        with self._block:
            return self._generator.send(value)

    def throw(self, *exception: Any) -> Any:
        with self._block:
            return self._generator.throw(*exception)

    def close(self) -> None:
        self._generator.close()
