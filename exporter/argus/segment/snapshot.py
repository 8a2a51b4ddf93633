"""A consistent copy of a segment that another process is writing.

Records with a ``seq`` field are guarded by a sequence lock.  The file (about
250 KB, 430 KB with kernels), without the flight recorder at its end, is read
three times in a row: a guarded record of the middle
copy is consistent when its ``seq`` is even and the same in the first and the
third copy, because everything in the middle copy was read between the two.
Records that were caught in the middle of a write are looked for again in the
next copies, a few times.  What stays inconsistent keeps an odd ``seq`` in the
result, so that the reader knows; for histograms that is no harm, their words
only grow.

Everything is read with ``pread``: a file that shrinks while it is mapped kills
its reader by SIGBUS.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import numpy.typing as npt

from argus.segment import layout
from argus.segment.sections import SegmentError, directory, shorten, state_extent

_TRIES = 8
_GUARDED = {
    "IDENTITY": ("seq",),
    "ITERATION_HISTOGRAM": ("seq",),
    "PHASES": ("seconds", "seq"),
    "COLLECTIVES": ("seconds", "seq"),
    "ITERATIONS": ("seq",),
    "KERNELS": ("seconds", "seq"),
    "DEVICE_PHASES": ("seconds", "seq"),
    "DEVICE_ITERATIONS": ("seq",),
}


def take(fd: int) -> bytes:
    """Copy the segment behind ``fd`` consistently, without the flight recorder.

    Raises:
        SegmentError: The copy's header or directory of sections is bad.
        OSError: The file can't be read.
    """
    extent = state_extent(_pread(fd, layout.HEADER.itemsize), os.fstat(fd).st_size)
    views = [_view(fd, extent)]
    result = _copy(fd, extent)
    merged = directory(result)[1]
    views += [directory(bytes(result))[1], _view(fd, extent)]
    if any(_shape(view) != _shape(merged) for view in views):
        raise SegmentError("the file changed its shape while it was read; remove it if this lasts")

    _merge_state(merged, views)
    open_records = {
        number: np.ones(len(merged[number]), dtype=bool)
        for number in (layout.SECTIONS[name] for name in _GUARDED)
        if number in merged
    }
    for _ in range(_TRIES):
        if not _settle(open_records, merged, views):
            return bytes(result)
        fresh = _view(fd, extent)
        if _shape(fresh) != _shape(merged):
            break
        views = [*views[1:], fresh]
    for number, unsettled in open_records.items():
        sequence = _sequence(merged[number], number)
        sequence[unsettled] |= np.uint64(1)
    return bytes(result)


def _pread(fd: int, length: int) -> bytes:
    """The file's first bytes; fewer where it is shorter."""
    parts = []
    offset = 0
    while offset < length:
        part = os.pread(fd, length - offset, offset)
        if not part:
            break
        parts.append(part)
        offset += len(part)
    return b"".join(parts)


def _copy(fd: int, extent: int) -> bytearray:
    copy = bytearray(_pread(fd, extent))
    if len(copy) < extent:
        raise SegmentError(f"truncated: {len(copy)} bytes are left; remove the file")
    shorten(copy)
    return copy


def _view(fd: int, extent: int) -> dict[int, npt.NDArray[Any]]:
    return directory(_copy(fd, extent))[1]


def _shape(sections: dict[int, npt.NDArray[Any]]) -> list[tuple[int, int]]:
    return [(number, len(records)) for number, records in sections.items()]


def _merge_state(merged: dict[int, npt.NDArray[Any]], views: list[dict[int, npt.NDArray[Any]]]) -> None:
    """Take the state from the first copy: what its counts cover was complete before the others."""
    number = layout.SECTIONS["STATE"]
    if number not in merged or not len(merged[number]):
        return
    first, middle, last = (view[number][0] for view in views)
    state = merged[number]
    state[0] = first
    if first["pause_begin"] == last["pause_begin"]:
        state[0]["pause_kind"] = middle["pause_kind"]
    else:
        state[0]["pause_begin"] = 0


def _sequence(records: npt.NDArray[Any], number: int) -> npt.NDArray[np.uint64]:
    view: npt.NDArray[Any] = records
    for field in _PATH[number]:
        view = view[field]
    return view


_PATH = {layout.SECTIONS[name]: path for name, path in _GUARDED.items()}


def _settle(
    open_records: dict[int, npt.NDArray[np.bool_]],
    merged: dict[int, npt.NDArray[Any]],
    views: list[dict[int, npt.NDArray[Any]]],
) -> bool:
    """Put records that are consistent in the middle view into ``merged``; whether some still are not."""
    first, middle, last = views
    for number, unsettled in open_records.items():
        if not unsettled.any():
            continue
        before, after = _sequence(first[number], number), _sequence(last[number], number)
        good = unsettled & (before == after) & (before & np.uint64(1) == 0)
        merged[number][good] = middle[number][good]
        unsettled &= ~good
    return any(unsettled.any() for unsettled in open_records.values())
