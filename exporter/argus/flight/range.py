"""Which iterations of a rank to show: the last N, or those with some numbers."""

from __future__ import annotations

import re
from dataclasses import dataclass

from argus.flight.model import ITERATIONS, Slice

_RANGE = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?\Z", re.ASCII)


class RangeError(ValueError):
    """Not understood, or nothing is recorded there; the message says what is."""


@dataclass(frozen=True)
class IterationRange:
    """Iterations to show.

    Attributes:
        last: So many of the last completed ones, and what came after them; None: by number.
        first, until: Numbers, both inclusive.
    """

    last: int | None = None
    first: int = 0
    until: int = 0

    def cut(self, tracks: dict[str, list[Slice]]) -> dict[str, list[Slice]]:
        """What overlaps the range.

        Raises:
            RangeError: None of its iterations is there.
        """
        done = [each for each in tracks.get(ITERATIONS, ()) if each.end is not None]
        if self.last is not None:
            chosen = done[-self.last :]
        else:
            chosen = [each for each in done if self.first <= dict(each.arguments)["iteration"] <= self.until]  # type: ignore[operator]
        if not chosen:
            recorded = f"{done[0].name} to {done[-1].name} are" if done else "no iteration is"
            raise RangeError(f"no such iteration is in the flight recorder; {recorded}")
        begin = min(each.begin for each in chosen)
        end = None if self.last is not None else max(each.end or 0 for each in chosen)
        return {
            name: [
                each
                for each in slices
                if (each.end is None or each.end > begin) and (end is None or each.begin < end)
            ]
            for name, slices in tracks.items()
        }


def parse(text: str) -> IterationRange:
    """From ``N`` (the last N) or ``a-b``.

    Raises:
        RangeError: It is neither.
    """
    match = _RANGE.match(text)
    if match is None:
        raise RangeError(f"iterations are N (the last N) or a-b (from a to b), not {text[:40]!r}")
    if match[2] is None:
        if int(match[1]) == 0:
            raise RangeError("the last 0 iterations show nothing; ask for at least 1")
        return IterationRange(last=int(match[1]))
    first, until = int(match[1]), int(match[2])
    if until < first:
        raise RangeError(f"iterations {text} end before they begin")
    return IterationRange(first=first, until=until)


def parse_ranks(texts: list[str]) -> set[int]:
    """From ``3``, ``1-3`` and ``0,4-7``, several of them.

    Raises:
        RangeError: Not understood, or more than 4,096 ranks.
    """
    ranks: set[int] = set()
    for part in (part for text in texts for part in text.split(",")):
        match = _RANGE.match(part)
        if match is None:
            raise RangeError(f"ranks are numbers, or ranges such as 1-3, not {part[:40]!r}")
        first, until = int(match[1]), int(match[2] or match[1])
        if until < first or until - first >= _MOST_RANKS or len(ranks) >= _MOST_RANKS:
            raise RangeError(f"ranks {part} end before they begin, or are more than {_MOST_RANKS}")
        ranks.update(range(first, until + 1))
    return ranks


_MOST_RANKS = 4096
