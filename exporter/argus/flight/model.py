"""What a trace shows, whatever it was read from and whatever it is written as."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

ITERATIONS, PHASES, COLLECTIVES, PAUSES = "iterations", "phases", "collectives", "pauses"
"""Names of a rank's tracks, besides those of its streams."""


Arguments: TypeAlias = "tuple[tuple[str, int | str], ...]"


class Slice(NamedTuple):
    """An interval on a track.

    Attributes:
        begin: Nanoseconds on the clock of its rank.
        end: None: it was still open.
        name: What is written on it.
        arguments: More about it, as pairs.
    """

    begin: int
    end: int | None
    name: str
    arguments: Arguments = ()


@dataclass(frozen=True)
class RankTrace:
    """What one rank did last.

    Attributes:
        run_id, role, rank, node, attempt: Who it is.
        clock: Names the clock of its times: equal for ranks of one boot of one machine.
        wall_ns: What to add to its times for wall-clock time, as that machine had it.
        tracks: Slices by name of their track, in order of display, oldest first.
        notes: What a reader of the trace should know.
    """

    run_id: str
    role: str
    rank: int
    node: str
    attempt: int
    clock: str
    wall_ns: int
    tracks: dict[str, list[Slice]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def last_wall_ns(self) -> int:
        """Wall-clock time of the last event."""
        ends = (each.end or each.begin for slices in self.tracks.values() for each in slices)
        return max(ends, default=0) + self.wall_ns

    @property
    def key(self) -> tuple[str, int]:
        """Run and rank, by which traces are sorted and told apart."""
        return self.run_id, self.rank


def shifted(trace: RankTrace, by_ns: int) -> RankTrace:
    """The same on a clock that is ahead by so much."""
    tracks = {
        name: [
            Slice(each.begin + by_ns, None if each.end is None else each.end + by_ns, *each[2:])
            for each in slices
        ]
        for name, slices in trace.tracks.items()
    }
    return replace(trace, tracks=tracks, wall_ns=trace.wall_ns - by_ns)


def lanes(slices: list[Slice]) -> list[list[Slice]]:
    """Divide slices so that on each lane they follow or enclose each other, as Perfetto's tracks need it.

    Phases may end out of order, and collectives overlap, where several threads run them.
    """
    endless = 1 << 63
    result: list[list[Slice]] = []
    open_ends: list[list[int]] = []

    def end_of(each: Slice) -> int:
        return endless if each.end is None else each.end

    for each in sorted(slices, key=lambda each: (each.begin, -end_of(each))):
        for ends in open_ends:
            while ends and ends[-1] <= each.begin:
                ends.pop()
        fits = (at for at, ends in enumerate(open_ends) if not ends or end_of(each) <= ends[-1])
        at = next(fits, len(result))
        if at == len(result):
            result.append([])
            open_ends.append([])
        result[at].append(each)
        open_ends[at].append(end_of(each))
    return result
