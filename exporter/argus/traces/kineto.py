"""Kineto traces, one file per rank: iterations, device seconds per phase, and NCCL collectives.

- An iteration is a ``ProfilerStep#N`` annotation.
- Device work (kernels, copies, memsets) belongs to the iteration and phase in
  which it was **launched**: by its correlation id to the launching call, and
  there to the innermost annotation that marks a phase, on the launching thread.
  Threads of autograd's engine launch ``backward``.
- A phase's compute seconds are the union of its device work without NCCL kernels;
  NCCL kernels are collectives, with the operation that the framework marked
  around the launch (NCCL runs an all-to-all as SendRecv).
- ``gpu_idle`` is the iteration minus all device work; busy is the iteration minus
  the time in which only communication ran.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from argus.traces import kineto_names as names
from argus.traces.errors import Notes, TraceError
from argus.traces.intervals import Intervals, clip, complement, length, union
from argus.traces.kineto_file import KinetoFile
from argus.traces.kineto_marks import Innermost, Mark
from argus.traces.table import BUSY, MOST_RANKS, NONE, WALL, Collective, Phase, Rank, Table, empty_rows

_DEVICE = frozenset(("kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"))
_LAUNCH = frozenset(("cuda_runtime", "cuda_driver", "hip_runtime", "runtime"))
_MARKS = frozenset(("user_annotation", "cpu_op", "operator"))
_CATEGORIES = _DEVICE | _LAUNCH | _MARKS
_STEP = re.compile(r"ProfilerStep#(\d{1,15})$")

_FARTHEST_NS = 1 << 60

_Row = tuple[int, int, int, int, int, float]
"""Iteration, phase, collective, begin and end in ns, bytes."""


@dataclass
class _Work:
    """One kernel, copy or memset; times in ns from the run's origin."""

    begin: int
    end: int
    correlation: int
    collective: bool
    name: str
    args: dict[str, Any]


@dataclass
class _Events:
    """What one file holds that matters here; marks are (begin, end, …) by thread."""

    steps: dict[int, tuple[int, int]] = field(default_factory=dict)
    work: list[_Work] = field(default_factory=list)
    launches: dict[int, tuple[object, int]] = field(default_factory=dict)
    phases: dict[object, list[Mark]] = field(default_factory=lambda: defaultdict(list))
    collectives: dict[object, list[Mark]] = field(default_factory=lambda: defaultdict(list))
    engine: set[object] = field(default_factory=set)  # threads of autograd's engine
    main: set[object] = field(default_factory=set)  # threads that mark iterations

    def waits(self) -> Iterator[Mark]:
        """Collectives that the host waits for; NCCL's run on the device."""
        for marks in self.collectives.values():
            yield from (mark for mark in marks if mark[2][0][0] != "nccl")


class Reader:
    """Reads the files of one run, one after the other, into a table."""

    def __init__(self, table: Table, notes: Notes) -> None:
        self._table = table
        self._notes = notes
        self._origin: int | None = None
        self._seen: set[tuple[int, int]] = set()

    def read(self, path: str) -> None:
        """Add one file.

        Raises:
            TraceError: It has no iterations, or does not say of which rank it is.
        """
        file = KinetoFile(path, self._notes)
        events = self._collect(file)
        if not events.steps:
            raise TraceError(
                f"{path}: no ProfilerStep# marks, so no iterations; "
                "call profiler.step() at the end of every iteration"
            )
        if not events.work:
            self._notes.add(path, "no GPU work, so phases have no seconds; profile ProfilerActivity.CUDA too")
        rank = self._rank(path, file.distributed)
        world_size = file.distributed.get("world_size")
        world = world_size if isinstance(world_size, int) else -1
        for number in [n for n in events.steps if (rank, n) in self._seen]:
            self._notes.add(path, "iterations that another file of the rank already has", f"{number}")
            del events.steps[number]
        self._seen.update((rank, number) for number in events.steps)
        self._table.ranks.setdefault(rank, Rank(rank, world_size=world, as_recorded=True, placed=False))
        self._emit(rank, world, events)

    def _rank(self, path: str, distributed: dict[str, Any]) -> int:
        rank = distributed.get("rank")
        if isinstance(rank, int) and 0 <= rank < MOST_RANKS:
            return rank
        found = re.search(r"rank[-_.]?(\d{1,9})", os.path.basename(path))
        if found:
            return int(found[1])
        raise TraceError(
            f"{path}: does not say of which rank it is (no distributedInfo); name the file rank-<number>.json"
        )

    def _collect(self, file: KinetoFile) -> _Events:
        events = _Events()
        for event in file.events():
            category = str(event.get("cat", "")).lower()
            if event.get("ph") != "X" or category not in _CATEGORIES:
                continue
            try:
                self._take(events, category, event)
            except (KeyError, TypeError, ValueError, OverflowError):
                self._notes.add(file.path, "events without valid times or ids", str(event.get("name"))[:60])
        return events

    def _take(self, events: _Events, category: str, event: dict[str, Any]) -> None:
        name = str(event["name"])
        args = event.get("args")
        args = args if isinstance(args, dict) else {}
        if category in _MARKS:
            step = _STEP.match(name)
            phase = None if step else names.phase_of(name)
            marked = None if step or phase else names.marked_operation(name)
            if category != "user_annotation" and not step and phase != names.BACKWARD:
                return
            if not step and not phase and not marked:
                return
        elif "correlation" not in args:
            return
        begin = round(event["ts"] * 1000)
        if self._origin is None:
            self._origin = begin
        begin -= self._origin
        end = begin + max(0, round(event.get("dur", 0) * 1000))
        if begin < -_FARTHEST_NS or end > _FARTHEST_NS:
            raise ValueError("beyond any clock")
        thread = (event.get("pid"), event.get("tid"))
        if category in _LAUNCH:
            events.launches[int(args["correlation"])] = (thread, begin)
        elif category in _DEVICE:
            collective = names.is_communication_kernel(name)
            events.work.append(_Work(begin, end, int(args["correlation"]), collective, name, args))
        elif step:
            events.steps.setdefault(int(step[1]), (begin, end))
            events.main.add(thread)
        elif phase:
            events.phases[thread].append((begin, end, phase))
            if category != "user_annotation":
                events.engine.add(thread)
        else:
            events.collectives[thread].append((begin, end, (marked, args)))

    def _emit(self, rank: int, world: int, events: _Events) -> None:
        numbers = sorted(events.steps)
        begins = [events.steps[number][0] for number in numbers]
        phase_at = Innermost(events.phases)
        mark_at = Innermost(events.collectives)
        device: dict[int, dict[Phase, list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
        engine = events.engine - events.main
        rows: list[_Row] = []
        for work in events.work:
            thread, at = events.launches.get(work.correlation, (None, work.begin))
            position = bisect_right(begins, at) - 1
            if position < 0 or at >= events.steps[numbers[position]][1]:
                continue  # before the first or after the last iteration
            number = numbers[position]
            if not work.collective:
                phase = phase_at(thread, at) or (names.BACKWARD if thread in engine else names.OTHER)
                # A host phase's seconds are the host's; device work launched in it is not its own.
                owner = names.OTHER if phase.kind == "host" else phase
                device[number][owner].append((work.begin, work.end))
                continue
            marked, mark_args = mark_at(thread, at) or (None, {})
            op = names.operation(str(work.args.get("Collective name", "")))
            op = op or (marked[1] if marked else names.kernel_operation(work.name))
            size = names.payload(work.args)
            size = names.payload(mark_args) if np.isnan(size) else size
            communicator = names.communicator(op, work.args)
            rows.append(self._occurrence(number, communicator, work.begin, work.end, size))
        rows += self._host_collectives(events)
        for number in numbers:
            for owner, spans in device[number].items():
                rows += self._total(number, owner, union(_array(spans)))
        rows += self._extents(events)
        self._add(rank, rows)

    def _occurrence(self, iteration: int, collective: Collective, begin: int, end: int, size: float) -> _Row:
        phase = self._table.phase(collective.op, "communication")
        return iteration, phase, self._table.collective(collective), begin, end, size

    def _total(self, iteration: int, phase: Phase, disjoint: Intervals) -> list[_Row]:
        """One occurrence that lasts as long as all of ``disjoint`` together."""
        if not len(disjoint):
            return []
        first = int(disjoint[0, 0])
        index = self._table.phase(phase.name, phase.kind)
        return [(iteration, index, NONE, first, first + int(length(disjoint)), float("nan"))]

    def _host_collectives(self, events: _Events) -> list[_Row]:
        """Collectives of backends that wait on the host, such as gloo."""
        rows = []
        for begin, end, ((_, op), args) in events.waits():
            for number, (first, last) in events.steps.items():
                if first <= begin < last:
                    communicator = names.communicator(op, args)
                    rows.append(self._occurrence(number, communicator, begin, end, names.payload(args)))
        return rows

    def _extents(self, events: _Events) -> list[_Row]:
        """Wall, busy and host phases of the iterations."""
        compute = union(_array([(w.begin, w.end) for w in events.work if not w.collective]))
        communication = _array([(w.begin, w.end) for w in events.work if w.collective])
        waits = _array([(begin, end) for begin, end, _ in events.waits()])
        working = union(np.concatenate((compute, communication, waits)))
        marks = [mark for thread in events.phases.values() for mark in thread]
        loading = union(_array([(begin, end) for begin, end, phase in marks if phase.kind == "host"]))
        rows: list[_Row] = []
        for number, (begin, end) in events.steps.items():
            idle = complement(working, begin, end) if len(working) else _array([])
            host = clip(loading, begin, end)
            busy = int(length(union(np.concatenate((clip(compute, begin, end), idle, host)))))
            rows.append((number, WALL, NONE, begin, end, float("nan")))
            rows.append((number, BUSY, NONE, begin, begin + busy, float("nan")))
            rows += self._total(number, Phase("data_loading", "host"), host)
            rows += self._total(number, Phase("gpu_idle", "host"), idle)
        return rows

    def _add(self, rank: int, rows: list[_Row]) -> None:
        table_rows = empty_rows(len(rows))
        table_rows["rank"] = rank
        if rows:
            iteration, phase, collective, begin, end, size = (
                np.array(column) for column in zip(*rows, strict=True)
            )
            table_rows["iteration"] = iteration
            table_rows["phase"] = phase
            table_rows["collective"] = collective
            table_rows["start"] = begin / 1e9
            table_rows["duration"] = (end - begin) / 1e9
            table_rows["bytes"] = size
        self._table.add(table_rows)


def _array(spans: list[tuple[int, int]]) -> Intervals:
    return np.array(spans, dtype=np.int64).reshape(-1, 2)
