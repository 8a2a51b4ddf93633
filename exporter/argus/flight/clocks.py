"""One clock for ranks of several machines.

Ranks of one machine share CLOCK_MONOTONIC.  Across machines, a collective that
makes everybody wait ends everywhere at the same time, but for microseconds:
the median difference of the ends of shared collectives is the difference of
the clocks, whatever a few of them did.  Machines without shared collectives are
aligned by their wall clocks, which NTP keeps within milliseconds at best.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import median_low

from argus.flight.model import COLLECTIVES, RankTrace, shifted

_TOGETHER = frozenset(("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier", "grad_sync"))
"""Operations that end for nobody before everybody has come."""
_SUSPICIOUS_NS = 60_000_000_000
"""Wall clocks that differ by more from what the collectives say: those were not the same ones."""

_Key = tuple[int, str, str, int]
_Ends = dict[_Key, int]


def align(traces: Sequence[RankTrace]) -> tuple[list[RankTrace], list[str]]:
    """Put all traces on the clock of the first one.

    Returns:
        The traces, and in words how each further machine was aligned.
    """
    clocks = list(dict.fromkeys(trace.clock for trace in traces))
    ends = {clock: _ends(trace for trace in traces if trace.clock == clock) for clock in clocks}
    walls = {clock: median_low(t.wall_ns for t in traces if t.clock == clock) for clock in clocks}
    nodes = {clock: _nodes(traces, clock) for clock in clocks}
    offsets: dict[str, int] = dict.fromkeys(clocks[:1], 0)
    said = []
    while len(offsets) < len(clocks):
        rest = [clock for clock in clocks if clock not in offsets]
        shared, known, clock = max(
            ((len(ends[a].keys() & ends[b].keys()), a, b) for a in offsets for b in rest),
            key=lambda each: each[0],
        )
        by_wall = walls[clock] - walls[clocks[0]]
        if shared:
            ours, theirs = ends[known], ends[clock]
            differences = [ours[key] - theirs[key] for key in ours.keys() & theirs.keys()]
            middle = median_low(differences)
            spread = median_low(abs(each - middle) for each in differences)
            by_collectives = offsets[known] + middle
            if abs(by_collectives - by_wall) <= _SUSPICIOUS_NS:
                offsets[clock] = by_collectives
                said.append(
                    f"{nodes[clock]}: clock aligned with {nodes[known]} on the ends of {shared} shared "
                    f"collectives, which differ by {spread / 1e3:.0f} us typically"
                )
                continue
            ends[clock] = {}  # not the same collectives; and the next round must not ask again
        offsets[clock] = by_wall
        said.append(
            f"{nodes[clock]}: clock aligned by wall-clock time only, for no collective is in both "
            "recordings; milliseconds mean nothing"
        )
    return [
        replace(shifted(trace, offsets[trace.clock]), clock=clocks[0]) if trace.clock != clocks[0] else trace
        for trace in traces
    ], said


def _nodes(traces: Sequence[RankTrace], clock: str) -> str:
    names = dict.fromkeys(trace.node or "?" for trace in traces if trace.clock == clock)
    return " and ".join(names)


def _ends(traces: Iterable[RankTrace]) -> _Ends:
    """When each collective ended on this machine: the median of its ranks."""
    found: dict[_Key, list[int]] = defaultdict(list)
    for trace in traces:
        for each in trace.tracks.get(COLLECTIVES, ()):
            arguments = dict(each.arguments)
            sequence = arguments.get("sequence")
            if each.end is None or each.name.lower() not in _TOGETHER or not isinstance(sequence, int):
                continue
            key = (trace.attempt, str(arguments.get("group")), str(arguments.get("group_id")), sequence)
            found[key].append(each.end)
    return {key: median_low(ends) for key, ends in found.items()}
