"""What can be wrong with a recorded trace, in words that say how to mend it."""

from __future__ import annotations

from collections.abc import Iterator


class TraceError(Exception):
    """A trace, or the whole set of them, can't be used; the text says where, what and how to mend it."""


class UnknownFormatError(TraceError):
    """A file that can be read, and is no trace of any known format."""


class Notes:
    """What was left out while reading: counted by file and reason, with the first example of each."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], int] = {}
        self._first: dict[tuple[str, str], str] = {}

    def add(self, path: str, reason: str, example: str = "", count: int = 1) -> None:
        """Count ``count`` things left out of ``path`` for ``reason``; the first ``example`` is kept."""
        key = (path, reason)
        self._counts[key] = self._counts.get(key, 0) + count
        self._first.setdefault(key, example)

    def lines(self) -> Iterator[str]:
        """One line for each file and reason."""
        for (path, reason), count in self._counts.items():
            example = self._first[(path, reason)]
            times = f" ({count:,} times)" if count > 1 else ""
            yield f"{path}: {reason}{times}" + (f"; first: {example}" if example else "")

    def __bool__(self) -> bool:
        return bool(self._counts)
