"""``argus.data``: the time that any loop waits for its next batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar

from argus._native import phase

_Batch = TypeVar("_Batch", covariant=True)


def data(iterable: Iterable[_Batch]) -> Batches[_Batch]:
    """The same batches, with the time that the loop waits for each in the host phase data_loading.

    Wrap what the loop itself takes batches from, not what fills a queue in
    another thread::

        for batch in argus.data(loader):
            with argus.iteration():
                ...

    Args:
        iterable: A data loader, an iterator, a generator; all its attributes
            (``dataset``, ``set_epoch``, …) are those of what is returned.
    """
    return BatchIterator(iterable) if isinstance(iterable, Iterator) else Batches(iterable)


class Batches(Generic[_Batch]):
    """Stands for an iterable whose iterators are timed."""

    def __init__(self, iterable: Iterable[_Batch]) -> None:
        self._argus_data: Any = iterable

    def __iter__(self) -> Iterator[_Batch]:
        return BatchIterator(iter(self._argus_data))

    def __len__(self) -> int:
        return len(self._argus_data)

    def __getattr__(self, name: str) -> Any:
        if name == "_argus_data":  # being copied, and not filled yet
            raise AttributeError(name)
        return getattr(self._argus_data, name)


class BatchIterator(Batches[_Batch]):
    """Stands for an iterator."""

    _phase = phase("data_loading")

    def __iter__(self) -> Iterator[_Batch]:
        return self

    def __next__(self) -> _Batch:
        with self._phase:
            return next(self._argus_data)  # type: ignore[no-any-return]
