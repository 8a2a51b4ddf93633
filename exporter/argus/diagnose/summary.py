"""What was read from a trace, per rank: iterations, phases and collectives with their seconds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from argus.traces import Accountant, RankIteration, Table

_SHOWN_RANKS = 8


@dataclass
class _Total:
    count: int = 0
    seconds: float = 0.0
    bytes: float = 0.0


@dataclass
class _Rank:
    iterations: list[int] = field(default_factory=list)
    wall: float = 0.0
    busy: float = 0.0
    phases: dict[int, _Total] = field(default_factory=dict)
    collectives: dict[int, _Total] = field(default_factory=dict)


class Summary:
    """Totals over a whole table; memory grows with the ranks, not with the iterations."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._ranks: dict[int, _Rank] = {number: _Rank() for number in sorted(table.ranks)}
        accountant = Accountant(table)
        for number, rows in table:
            for rank in accountant.ranks(number, rows):
                self._add(rank)

    def _add(self, iteration: RankIteration) -> None:
        rank = self._ranks[iteration.rank]
        rank.iterations.append(iteration.iteration)
        rank.wall += iteration.wall
        rank.busy += iteration.busy
        rows = iteration.rows
        for phase, collective, seconds, seen, size in zip(
            rows["phase"].tolist(),
            rows["collective"].tolist(),
            iteration.seconds.tolist(),
            rows["duration"].tolist(),
            rows["bytes"].tolist(),
            strict=True,
        ):
            total = rank.phases.setdefault(phase, _Total())
            total.count += 1
            total.seconds += seconds
            if collective >= 0:
                total = rank.collectives.setdefault(collective, _Total())
                total.count += 1
                total.seconds += seen
                total.bytes += size if size == size else 0.0

    def json(self) -> dict[str, Any]:
        """By rank: iterations, wall and busy seconds, phases, and collectives as seen by the rank."""
        return {str(number): self._json(rank) for number, rank in self._ranks.items()}

    def _json(self, rank: _Rank) -> dict[str, Any]:
        phases, collectives = self._table.phases, self._table.collectives
        return {
            "iterations": rank.iterations,
            "wall_seconds": round(rank.wall, 9),
            "busy_seconds": round(rank.busy, 9),
            "phases": [
                {
                    "phase": phases[code].name,
                    "kind": phases[code].kind,
                    "count": total.count,
                    "seconds": round(total.seconds, 9),
                }
                for code, total in sorted(rank.phases.items(), key=lambda item: -item[1].seconds)
            ],
            "collectives": [
                {
                    "op": collectives[code].op,
                    "group": collectives[code].group,
                    "group_id": collectives[code].group_id,
                    "count": total.count,
                    "seconds": round(total.seconds, 9),
                    "bytes": round(total.bytes),
                }
                for code, total in sorted(rank.collectives.items(), key=lambda item: -item[1].seconds)
            ],
        }

    def lines(self) -> Iterator[str]:
        """For people; the first ranks only."""
        for number, rank in list(self._ranks.items())[:_SHOWN_RANKS]:
            data = self._json(rank)
            count = len(rank.iterations)
            span = f"{rank.iterations[0]} to {rank.iterations[-1]}" if count else "none"
            yield (
                f"rank {number} ({self._table.ranks[number].role}): {count} iterations ({span}), "
                f"{data['wall_seconds']:.3f} s, of it busy {data['busy_seconds']:.3f} s"
            )
            for phase in data["phases"]:
                name = f"{phase['phase']} ({phase['kind']})"
                yield f"    {name:<44} {phase['count']:>6} times {phase['seconds']:>10.4f} s"
            for collective in data["collectives"]:
                name = f"{collective['op']} in {collective['group_id']}"
                size = f" {collective['bytes'] / 1e6:>12,.1f} MB" if collective["bytes"] else ""
                yield f"    {name:<44} {collective['count']:>6} times {collective['seconds']:>10.4f} s{size}"
        left = len(self._ranks) - _SHOWN_RANKS
        if left > 0:
            yield f"… and {left} more ranks (--json has them all)"
