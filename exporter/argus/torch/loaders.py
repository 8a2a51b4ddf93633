"""Time that the loop waits for its next batch; knows nothing of torch.

An iterable keeps its identity: its class is exchanged for a subclass made
here, whose iterators are timed.  Where Python refuses that (lists,
generators), `trace` returns a wrapper for the loop to use.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from argus.torch.recorder import Recorder

_CLASS: Any = object.__dict__["__class__"]


class TimedIterator:
    """An iterator whose every ``next`` on the loop's thread is a fetch; all else is the iterator's own."""

    def __init__(self, iterator: Iterator[Any], recorder: Recorder) -> None:
        self._argus_iterator = iterator
        self._argus_recorder = recorder

    def __iter__(self) -> TimedIterator:
        return self

    def __next__(self) -> Any:
        return timed_next(self._argus_recorder, self._argus_iterator.__next__)

    def __len__(self) -> int:
        return len(self._argus_iterator)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_argus_iterator"], name)

    def __del__(self) -> None:
        # The loop was left by `break`.  Never raise here: the interpreter may be ending.
        with contextlib.suppress(Exception):
            if self._argus_recorder.on_loop_thread:
                self._argus_recorder.data_ends()


class TimedIterable:
    """Stands for an iterable whose class could not be exchanged."""

    def __init__(self, iterable: Iterable[Any], recorder: Recorder) -> None:
        self._argus_iterable = iterable
        self._argus_recorder = recorder

    def __iter__(self) -> TimedIterator:
        return TimedIterator(iter(self._argus_iterable), self._argus_recorder)

    def __len__(self) -> int:
        return len(self._argus_iterable)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_argus_iterable"], name)


def timed_next(recorder: Recorder, fetch: Callable[[], Any]) -> Any:
    """``fetch()``, with its events told to the recorder."""
    if recorder.off or not recorder.on_loop_thread:
        return fetch()
    recorder.fetch_begins()
    try:
        batch = fetch()
    except StopIteration:
        recorder.data_ends()
        raise
    except BaseException:
        recorder.fetch_fails()
        raise
    recorder.fetch_ends()
    return batch


def trace(iterable: Iterable[Any], recorder: Recorder) -> tuple[Iterable[Any], Callable[[], None]]:
    """Have the iterable's fetches recorded.

    Returns:
        What the loop must iterate over (the same object, unless that is a
        `TimedIterable`), and what undoes it.
    """
    base = type(iterable)
    try:
        _CLASS.__set__(iterable, _timed_class(base, recorder))
    except TypeError:
        return TimedIterable(iterable, recorder), lambda: None

    def undo() -> None:
        _CLASS.__set__(iterable, base)

    return iterable, undo


def is_traced(iterable: object) -> bool:
    """Whether `trace` has been here."""
    return isinstance(iterable, TimedIterable) or hasattr(type(iterable), "_argus_base")


def _timed_class(base: type[Any], recorder: Recorder) -> type[Any]:
    """A subclass that looks like its base, times the fetches, and pickles and copies as its base."""

    original: Any = base

    def reduce_ex(self: Any, protocol: Any) -> Any:
        def plain(value: Any) -> Any:
            return base if value is timed else value

        reduced: Any = original.__reduce_ex__(self, protocol)
        if not isinstance(reduced, tuple):
            return reduced
        function, arguments, *rest = reduced
        return (plain(function), tuple(plain(argument) for argument in arguments), *rest)

    def iterate(self: Any) -> Any:
        return TimedIterator(original.__iter__(self), recorder)

    def fetch(self: Any) -> Any:
        return timed_next(recorder, lambda: original.__next__(self))

    members: dict[str, Any] = {
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
        "__doc__": base.__doc__,
        "__slots__": (),
        "__reduce_ex__": reduce_ex,
        "__class__": property(lambda self: base),  # pickle compares it with what it reduces to
        "_argus_base": base,
    }
    # An iterable that is its own iterator is asked for batches directly.
    members.update({"__next__": fetch} if hasattr(base, "__next__") else {"__iter__": iterate})
    metaclass: Any = type(base)
    timed: type[Any] = metaclass(base.__name__, (base,), members)
    return timed
