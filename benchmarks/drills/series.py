"""Series of drills as promtool's unit tests read them.

Only what the shipped rules read; labels that no rule needs are left out.  Scrapes are staggered: an
interval has ``STAGGER`` slots, and every node has its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

import numpy as np

from argus.drill.fleet import KINDS, UNIT
from benchmarks.drills.job import Job, Scrape
from benchmarks.drills.windows import Floats

STAGGER = 5
"""Slots of a scrape interval."""
_SLOWEST = ("jit_compile",)
"""Phases of which rules read the slowest iteration."""
_QUANTILES = ("0.0", "0.5", "1.0")

Line = tuple[str, str]
"""A series and its values, in promtool's notation."""


class Recording:
    """Scrapes of one job.

    Args:
        job: What is scraped.
        run_id: Its name.
        interval: Seconds between two scrapes of a node.
    """

    def __init__(self, job: Job, run_id: str, interval: float) -> None:
        self._job, self._run_id, self._topology = job, run_id, job.topology
        self._slot = interval / STAGGER
        # Neighbours are scraped far apart.
        self._offset = np.arange(self._topology.nodes) * 2 % STAGGER
        self._slots = 0
        self._rows: dict[str, list[Floats]] = {}
        self._open: dict[tuple[str, str], list[Floats]] = {}
        self._known: list[Floats] = []

    def run(self, seconds: float) -> None:
        """Scrape for so long."""
        slots = math.floor(seconds / self._slot) + 1
        for slot in range(self._slots, slots):
            nodes = self._offset == slot % STAGGER
            self._take(slot // STAGGER, self._job.scrape(nodes, slot * self._slot), slot * self._slot)
        self._slots = slots

    def _row(self, name: str, count: int) -> Floats:
        """Values of a series of all ranks at a scrape; NaN: none."""
        rows = self._rows.setdefault(name, [])
        while len(rows) <= count:
            rows.append(np.full(self._topology.ranks, np.nan))
        return rows[count]

    def _take(self, count: int, scrape: Scrape, now: float) -> None:
        known, up = scrape.known, scrape.up
        self._row("up", count)[known] = up[known]
        self._row("attempt", count)[known] = scrape.attempt
        for part in scrape.windows:
            self._row("iteration", count)[part.ranks] = part.number
            self._row("age", count)[part.ranks] = now - part.end
            for phase in part.dependent:
                self._row(f"dependent {phase}", count)[part.ranks] = 1
            if not len(part.ranks) or not part.count[0]:
                continue
            self._row("window", count)[part.ranks] = part.count
            for name, quantile, values in self._spent(part.spent):
                self._row(f"{name} {quantile}", count)[part.ranks] = values
            for phase, found in part.work.items():
                for name, row in zip(("work", "pace 0.0", "pace 0.5"), found, strict=True):
                    kind, *quantile = name.split()
                    self._row(" ".join((kind, phase, *quantile)), count)[part.ranks] = row
            for index in range(len(self._job.history.channels)):
                for place, quantile in enumerate(("0.0", "0.5")):
                    row = self._row(f"channel {index} {quantile}", count)
                    row[part.ranks] = part.collectives[place, index]
        for opened, ranks, age in scrape.open:
            self._row(f"open {opened.name} {opened.kind}", count)[ranks] = age

    def _spent(self, spent: Floats) -> Iterator[tuple[str, str, Floats]]:
        phases = self._job.history.phases
        for place, quantile in enumerate(_QUANTILES):
            if quantile != "0.0":
                yield "wall", quantile, spent[place, 0]
                yield "busy", quantile, spent[place, 1]
            for index, phase in enumerate(phases):
                if quantile != "1.0" or phase in _SLOWEST:
                    yield f"phase {phase}", quantile, spent[place, 2 + index]

    def lines(self, bytes_known: bool = True) -> Iterator[Line]:
        """All series with their values, ready for promtool at an interval of one slot."""
        topology, rows = self._topology, {name: np.stack(found) for name, found in self._rows.items()}
        for rank in range(topology.ranks):
            yield from self._lines_of(rank, rows, bytes_known)
        for node in range(topology.nodes):
            yield f'up{{job="argus", instance="{self._instance(node)}"}}', f"1x{self._slots - 1}"

    def _instance(self, node: int) -> str:
        return f"{self._run_id}-n{node}:9733"

    def _lines_of(self, rank: int, rows: dict[str, Floats], bytes_known: bool) -> Iterator[Line]:
        topology = self._topology
        node = topology.node(rank)
        offset = int(self._offset[node])
        who = topology.identity(rank)
        base = f'run_id="{self._run_id}", role="{who["role"]}", rank="{rank}"'

        def values(name: str, scale: Callable[[float], float] | None = None) -> str | None:
            found = rows[name][:, rank] if name in rows else np.array([np.nan])
            return _tokens(found.tolist(), offset, scale)

        def line(metric: str, name: str, more: str = "") -> Iterator[Line]:
            text = values(name)
            if text is not None:
                yield f"{metric}{{{base}{more}}}", text

        known = ~np.isnan(rows["up"][:, rank])
        coordinates = ", ".join(f'{key}="{who[key]}"' for key in ("dp", "tp", "pp", "cp", "ep"))
        constant = self._constant(known, offset)
        place = f'job="argus", instance="{self._instance(node)}", '
        yield (f'argus_rank_info{{{base}, node="{self._run_id}-n{node}", {coordinates}}}', constant.format(1))
        yield f"argus_world_size{{{base}}}", constant.format(topology.ranks)
        up = values("up")
        assert up is not None
        yield f"argus_rank_up{{{place}{base}}}", up
        yield from line("argus_attempt", "attempt")
        yield from line("argus_iteration", "iteration")
        yield from line("argus_iteration_age_seconds", "age")
        yield from line("argus_window_iterations", "window")
        for name in rows:
            kind, *rest = name.split()
            if kind in ("wall", "busy"):
                metric = f"argus_window_{'iteration' if kind == 'wall' else 'busy'}_seconds"
                yield from line(metric, name, f', quantile="{rest[0]}"')
            elif kind == "phase":
                more = f', phase="{rest[0]}", kind="{KINDS[rest[0]]}", quantile="{rest[1]}"'
                yield from line("argus_window_phase_seconds", name, more)
            elif kind == "work":
                yield from line("argus_window_work", name, f', unit="{UNIT}", phase="{rest[0]}"')
            elif kind == "pace":
                more = f', unit="{UNIT}", phase="{rest[0]}", kind="{KINDS[rest[0]]}", quantile="{rest[1]}"'
                yield from line("argus_window_work_seconds", name, more)
            elif kind == "dependent":
                more = f', phase="{rest[0]}", kind="{KINDS[rest[0]]}"'
                yield from line("argus_phase_data_dependent", name, more)
            elif kind == "open":
                yield from line("argus_phase_open_seconds", name, f', phase="{rest[0]}", kind="{rest[1]}"')
        yield from self._collectives(rank, base, rows, offset, bytes_known)

    def _collectives(
        self, rank: int, base: str, rows: dict[str, Floats], offset: int, bytes_known: bool
    ) -> Iterator[Line]:
        topology, history = self._topology, self._job.history
        stage = topology.stage(rank)
        described = set()
        for index, channel in enumerate(history.channels):
            occurrences = int(history.occurrences[index, stage])
            name = f"channel {index} 0.0"
            if not occurrences or name not in rows:
                continue
            fastest, typical = rows[name][:, rank], rows[f"channel {index} 0.5"][:, rank]
            members = channel.members(topology, rank)
            communicator = f'group="{channel.group}", group_id="{channel.group_id(members)}"'
            own = f'{base}, op="{channel.op}", {communicator}'
            seen = ~np.isnan(fastest)
            if not seen.any():
                continue
            for quantile, found in (("0.0", fastest), ("0.5", typical)):
                text = _tokens(found.tolist(), offset)
                assert text is not None
                yield f'argus_window_collective_seconds{{{own}, quantile="{quantile}"}}', text
            constant = self._constant(seen, offset)
            yield f"argus_window_collective_occurrences{{{own}}}", constant.format(occurrences)
            if bytes_known and channel.bytes:
                text = _tokens(fastest.tolist(), offset, lambda seconds, size=channel.bytes: size / seconds)
                assert text is not None
                yield f"argus_window_collective_bytes_per_second{{{own}}}", text
            if communicator not in described:
                described.add(communicator)
                yield f"argus_collective_members{{{base}, {communicator}}}", constant.format(len(members))
                nodes = topology.spans(members)
                yield f"argus_collective_nodes{{{base}, {communicator}}}", constant.format(nodes)

    @staticmethod
    def _constant(present: Sequence[bool], offset: int) -> str:
        """Values ``{}`` wherever a series is present, as a format string; it goes stale in between."""
        tokens = [f"_x{offset}"] if offset else []
        shown = False
        for there, run in groupby(present):
            slots = STAGGER * len(list(run))
            if there:
                tokens.append("{0}x" + str(slots - 1))
            elif shown:
                tokens += ["stale", f"_x{slots - 1}"]
            else:
                tokens.append(f"_x{slots}")
            shown = shown or bool(there)
        return " ".join(tokens)


def _tokens(
    values: Sequence[float], offset: int, scale: Callable[[float], float] | None = None
) -> str | None:
    """One value per scrape in promtool's notation, NaN for none; None where there is never any."""
    tokens = [f"_x{offset}"] if offset else []
    shown = False
    for value in values:
        if value == value:
            tokens.append(f"{value if scale is None else scale(value):.7g}")
            shown, there = True, True
        else:
            tokens.append("stale" if shown and there else "_")
            there = False
    gap = f" _x{STAGGER - 1} "
    if not shown:
        return None
    lead = len(tokens) > 1 and bool(offset)
    return f"{tokens[0]} {gap.join(tokens[1:])}" if lead else gap.join(tokens)
