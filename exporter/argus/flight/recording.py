"""What is read of a rank when somebody asks: state, flight recorder, stacks; and from there to a trace."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Protocol, runtime_checkable

from argus import _native
from argus.flight import ring
from argus.flight.kernel_names import readable
from argus.flight.model import COLLECTIVES, ITERATIONS, PAUSES, PHASES, Arguments, RankTrace, Slice
from argus.flight.range import IterationRange, RangeError
from argus.flight.ring import Ring
from argus.segment import snapshot
from argus.segment.reader import read
from argus.segment.state import RankKey, RankState
from argus.stacks import table
from argus.stacks.table import StackTable

_CLASSES = _native.kernel_classes()
_SEQUENCE = 1 << 32
"""Of a collective's sequence number the ring holds the remainder by this."""
_MOST_TRACKS = 260
"""Streams beyond share one track: their numbers come from the segment, which is not trusted."""


@dataclass(frozen=True)
class Recording:
    """What was found of one rank at one moment.

    Attributes:
        state: Its state, read after the rings, so that it knows what they name.
        up: Whether its process is alive.
        rings: Its last events; empty where its flight recorder is off.
        stacks: Where its Python threads were; None where stacks are not sampled.
        wall_ns: What to add to the segment's clock for wall-clock time.
    """

    state: RankState
    up: bool
    rings: tuple[Ring, ...]
    stacks: StackTable | None
    wall_ns: int


class HasSnapshot(Protocol):
    """``argus._native.Segment``, as far as a reader needs it."""

    def snapshot(self) -> bytes: ...


@runtime_checkable
class RecordingSource(Protocol):
    """Finds what ranks did last; the sources of ``argus.exporter`` do."""

    def record(self, wanted: Iterable[RankKey], now_ns: int) -> list[Recording]:
        """Read the ranks named, those that are there; ``now_ns`` as for ``RankSource.scan``."""
        ...


def record_file(fd: int, up: bool, now_ns: int) -> Recording:
    """Read the segment behind a descriptor.

    Raises:
        SegmentError, OSError: It can't be read; the message says why.
    """
    rings = tuple(ring.take_file(fd, now_ns))
    stacks = table.take_file(fd)
    return Recording(read(snapshot.take(fd), now_ns), up, rings, stacks, _wall_ns())


def record_memory(segment: HasSnapshot, up: bool, now_ns: int) -> Recording:
    """Read a segment of this process, whose kernels may be written meanwhile.

    Raises:
        SegmentError, ValueError: It can't be read, or was closed.
    """
    size = len(segment.snapshot())

    def part(offset: int, length: int) -> bytes:
        return segment.snapshot()[offset : offset + length]

    rings, stacks = ring.take(part, size, now_ns), table.take(part, size)
    return Recording(read(segment.snapshot(), now_ns), up, tuple(rings), stacks, _wall_ns())


def _wall_ns() -> int:
    return time.time_ns() - time.monotonic_ns()


@cache
def this_clock() -> str:
    """The name of this machine's CLOCK_MONOTONIC: it begins anew with each boot."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()[:13]
    except OSError:
        return "local"


def trace(recording: Recording, wanted: IterationRange | None = None) -> RankTrace:
    """Tracks of iterations, phases, collectives, pauses and streams.

    Args:
        recording: Of a live or a dead rank.
        wanted: Iterations to keep, and what overlaps them; None: everything.
    """
    state = recording.state
    tracks: dict[str, list[Slice]] = {ITERATIONS: [], PHASES: [], COLLECTIVES: [], PAUSES: []}
    unknown = 0
    for each in recording.rings:
        unknown += each.skipped + _sort_in(each, state, tracks)
    notes = []
    if not recording.rings:
        notes.append("the flight recorder is off in this rank (ARGUS_FLIGHT_EVENTS)")
    if unknown:
        notes.append(f"{unknown} events made no sense and were left out")
    if recording.up:
        _add_open(state, tracks)
    else:
        _add_open_phase(state, tracks)
        notes.append("its process is gone")
    if wanted is not None:
        tracks = wanted.cut(tracks)
    identity = state.identity
    return RankTrace(
        run_id=identity.run_id,
        role=identity.role,
        rank=identity.rank,
        node=identity.node,
        attempt=identity.attempt,
        clock=this_clock(),
        wall_ns=recording.wall_ns,
        tracks={name: slices for name, slices in tracks.items() if slices},
        notes=tuple(notes),
    )


def traces(recordings: Iterable[Recording], wanted: IterationRange | None = None) -> list[RankTrace]:
    """``trace`` of each; a rank without the wanted iterations is there, empty, and says so.

    Raises:
        RangeError: No rank has any of them.
    """
    result, failures = [], []
    for recording in recordings:
        try:
            result.append(trace(recording, wanted))
        except RangeError as error:
            failures.append(error)
            empty = replace(trace(recording), tracks={})
            result.append(replace(empty, notes=(*empty.notes, str(error))))
    if failures and len(failures) == len(result):
        raise failures[0]
    return result


def _sort_in(events: Ring, state: RankState, tracks: dict[str, list[Slice]]) -> int:
    """Put each event on its track; how many have a name that is not known."""
    phases = {phase.index: (phase.name, phase.kind) for phase in state.phases}
    collectives = {each.index: each for each in state.collectives}
    names = [_native_text(name) for name in events.names]
    unknown = 0
    columns = (events.type, events.begin, events.end, events.detail, events.name, events.lane, events.value)
    arguments: Arguments
    for type_, begin, end, detail, name, lane, value in zip(
        *(column.tolist() for column in columns), strict=True
    ):
        if type_ == ring.ON_DEVICE:
            class_ = _CLASSES[detail] if detail < len(_CLASSES) else "other"
            kernel = names[name] if name < len(names) else class_
            track = f"GPU {value >> 32} stream {lane}"
            if track not in tracks and len(tracks) >= _MOST_TRACKS:
                track = "GPU other streams"
            arguments = (("kernel_class", class_), ("correlation", value & 0xFFFFFFFF))
            shown = readable(kernel)
            arguments += (("kernel", kernel),) if shown != kernel else ()
            tracks.setdefault(track, []).append(Slice(begin, end, shown, arguments))
        elif type_ == ring.PHASE and name in phases:
            shown, kind = phases[name]
            tracks[PHASES].append(Slice(begin, end, shown, (("kind", kind), ("exclusive_ns", value))))
        elif type_ == ring.COLLECTIVE and name in collectives:
            its = collectives[name]
            sequence = max(its.enqueued - (its.enqueued - lane) % _SEQUENCE, 0)
            arguments = (("group", its.group), ("group_id", its.group_id), ("sequence", sequence))
            arguments += (("bytes", value),) if value else ()
            tracks[COLLECTIVES].append(Slice(begin, end, its.op, arguments))
        elif type_ == ring.ITERATION:
            tracks[ITERATIONS].append(Slice(begin, end, f"iteration {value}", (("iteration", value),)))
        elif type_ == ring.PAUSE:
            shown = names[name] if name < len(names) else "pause"
            tracks[PAUSES].append(Slice(begin, end, shown))
        else:
            unknown += 1
    return unknown


def _native_text(raw: bytes) -> str:
    text = raw.split(b"\0", 1)[0].decode("utf-8", errors="replace")
    return "".join(c if c.isprintable() else "\ufffd" for c in text)


def _add_open(state: RankState, tracks: dict[str, list[Slice]]) -> None:
    """What has not ended yet: the iteration, the innermost phase, its collective, a pause."""
    paused = state.open is not None and state.open.kind == "pause"
    if state.completed and not paused and state.last_iteration is not None:
        number = state.last_iteration + 1
        tracks[ITERATIONS].append(
            Slice(state.last_iteration_end_ns, None, f"iteration {number}", (("iteration", number),))
        )
    _add_open_phase(state, tracks)


def _add_open_phase(state: RankState, tracks: dict[str, list[Slice]]) -> None:
    now = state.open
    if now is None:
        return
    if now.kind == "pause":
        tracks[PAUSES].append(Slice(now.begin_ns, None, now.name))
        return
    if now.kind == "communication":
        for each in state.collectives:
            if each.op == now.name and each.enqueued > each.completed:
                arguments = (
                    ("group", each.group), ("group_id", each.group_id), ("sequence", each.enqueued)
                )  # fmt: skip
                tracks[COLLECTIVES].append(Slice(now.begin_ns, None, each.op, arguments))
                return
    tracks[PHASES].append(Slice(now.begin_ns, None, now.name, (("kind", now.kind),)))
