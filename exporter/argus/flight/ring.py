"""The rings of last events in a segment, copied while their writers go on.

A writer in another process overwrites the oldest event at any time.  The heads
are read before and after the events: what was written by then, and not yet
given way to newer events, was whole all the time.  The bytes are hostile input.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from argus.segment import layout
from argus.segment.sections import SegmentError, on_demand_places

Read = Callable[[int, int], bytes]
"""From offset and length to the segment's bytes, fewer beyond its end."""

_CONSTANTS: Final = layout.CONSTANTS
PHASE, COLLECTIVE, ITERATION, PAUSE, ON_DEVICE = (
    _CONSTANTS[f"FLIGHT_{name}"] for name in ("PHASE", "COLLECTIVE", "ITERATION", "PAUSE", "ON_DEVICE")
)
NO_NAME: Final = _CONSTANTS["FLIGHT_NO_NAME"]
_SECTIONS = (
    ("FLIGHT_EVENTS", "FLIGHT_NAMES", (PHASE, ITERATION, COLLECTIVE, PAUSE)),
    ("FLIGHT_KERNELS", "FLIGHT_KERNEL_NAMES", (ON_DEVICE,)),
)
"""Sections of events and of names, and the events' types, by ``enum argus_flight_writer``."""
_LONGEST_NS = np.uint64(1 << 53)
_AHEAD_NS = 1_000_000_000
"""Events that end later than this after they were read are no measurement."""


@dataclass(frozen=True)
class Ring:
    """One writer's last events.

    Attributes:
        begin, end: Nanoseconds, CLOCK_MONOTONIC; oldest written first, as the others; shape (n,).
        type, detail, name, lane, value: As ``enum argus_flight_type`` says.
        names: The ring's own names.
        skipped: Events left out because they made no sense.
    """

    begin: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    type: npt.NDArray[np.int64]
    detail: npt.NDArray[np.int64]
    name: npt.NDArray[np.int64]
    lane: npt.NDArray[np.int64]
    value: npt.NDArray[np.uint64]
    names: tuple[bytes, ...]
    skipped: int


def take(read: Read, size: int, now_ns: int) -> list[Ring]:
    """Copy the rings of a segment, none where the flight recorder is off.

    Args:
        read: Returns the segment's bytes.
        size: Bytes of the segment.
        now_ns: Now, on the clock of the events.

    Raises:
        SegmentError: The header or the directory of sections is bad.
        OSError: From ``read``.
    """
    places = on_demand_places(read(0, layout.HEADER.itemsize), size)
    if "FLIGHT" not in places:
        return []

    def records(name: str) -> npt.NDArray[Any]:
        offset, count = places[name]
        dtype = layout.ON_DEMAND_RECORDS[name]
        content = read(offset, count * dtype.itemsize)
        if len(content) < count * dtype.itemsize:
            raise SegmentError("truncated while it was read; remove the file")
        return np.frombuffer(content, dtype, count)

    before = records("FLIGHT")
    events = [records(of_events) if of_events in places else None for of_events, _, _ in _SECTIONS]
    after = records("FLIGHT")
    rings = []
    for writer, (_, of_names, types) in enumerate(_SECTIONS[: len(after)]):
        found = events[writer]
        if found is None or not len(found):
            continue
        names = records(of_names)["text"] if of_names in places else ()
        known = tuple(bytes(name) for name in names[: int(after[writer]["names"])])
        whole = _whole(found, int(before[writer]["head"]), int(after[writer]["head"]))
        rings.append(_ring(whole, known, types, now_ns + _AHEAD_NS))
    return rings


def take_file(fd: int, now_ns: int) -> list[Ring]:
    """``take`` from a file, without mapping it."""
    return take(lambda offset, length: _pread(fd, offset, length), os.fstat(fd).st_size, now_ns)


def _pread(fd: int, offset: int, length: int) -> bytes:
    parts = []
    while length > 0:
        part = os.pread(fd, length, offset)
        if not part:
            break
        parts.append(part)
        offset += len(part)
        length -= len(part)
    return b"".join(parts)


def _whole(events: npt.NDArray[Any], before: int, after: int) -> npt.NDArray[Any]:
    """Those that were complete at the first look and not being overwritten until the second."""
    capacity = len(events)
    first = max(0, after - capacity + 1)
    if after < before or before <= first:
        return events[:0]
    order = (first % capacity + np.arange(before - first)) % capacity
    return events[order]


def _ring(events: npt.NDArray[Any], names: tuple[bytes, ...], types: tuple[int, ...], latest_ns: int) -> Ring:
    what = events["what"]
    type_ = (what & np.uint64(0xFF)).astype(np.int64)
    begin, duration = events["begin"], events["duration"]
    good = np.isin(type_, types) & (duration <= _LONGEST_NS) & (begin <= np.uint64(latest_ns))
    good[good] &= begin[good] + duration[good] <= np.uint64(latest_ns)
    events, what = events[good], what[good]
    begins = events["begin"].astype(np.int64)
    return Ring(
        begin=begins,
        end=begins + events["duration"].astype(np.int64),
        type=type_[good],
        detail=(what >> np.uint64(8) & np.uint64(0xFF)).astype(np.int64),
        name=(what >> np.uint64(16) & np.uint64(0xFFFF)).astype(np.int64),
        lane=(what >> np.uint64(32)).astype(np.int64),
        value=events["value"],
        names=names,
        skipped=int(np.count_nonzero(~good)),
    )
