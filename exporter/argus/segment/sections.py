"""A segment's header and its directory of sections, checked against the bytes that hold them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from argus.segment import layout

Bytes: TypeAlias = "bytes | bytearray | memoryview"

MAX_BYTES = 8 << 20
"""Larger files are no segments of ours (about 250 KB, 430 KB with kernels) and are not read."""

STATE_BYTES = 1 << 20
"""Everything but the flight recorder and stacks lies in so much of a segment's beginning."""

_CAPS = {
    "IDENTITY": 1,
    "STATE": 1,
    "ITERATION_HISTOGRAM": 1,
    "PHASES": layout.CONSTANTS["MAX_PHASES"],
    "COLLECTIVES": layout.CONSTANTS["MAX_COLLECTIVES"],
    "ITERATIONS": 1024,
    "WORK": layout.CONSTANTS["MAX_WORK"],
    "WORK_ITERATIONS": 1024,
    "SOURCES": layout.CONSTANTS["MAX_SOURCES"],
    "KERNELS": layout.CONSTANTS["MAX_KERNEL_CLASSES"],
    "DEVICE": 1,
    "DEVICE_PHASES": layout.CONSTANTS["DEVICE_PHASES"],
    "DEVICE_ITERATIONS": 1024,
    "STACKS": 1,
}
_NAMES = {number: name for name, number in layout.SECTIONS.items() if name in _CAPS}
_ON_DEMAND_CAPS = {
    "FLIGHT": layout.CONSTANTS["FLIGHT_WRITERS"],
    "FLIGHT_EVENTS": layout.CONSTANTS["FLIGHT_MOST"],
    "FLIGHT_NAMES": layout.CONSTANTS["FLIGHT_NAMES"],
    "FLIGHT_KERNELS": layout.CONSTANTS["FLIGHT_MOST"],
    "FLIGHT_KERNEL_NAMES": layout.CONSTANTS["FLIGHT_NAMES"],
    "STACK_GENERATIONS": 16,
}
_ON_DEMAND_NAMES = {layout.SECTIONS[name]: name for name in _ON_DEMAND_CAPS}


class SegmentError(ValueError):
    """The bytes are no segment, or a damaged one; the message says what to do."""


class IncompatibleSegment(SegmentError):  # noqa: N818 (reads as what it is)
    """The segment was written by another version of the layout."""


def directory(snapshot: Bytes) -> tuple[Any, dict[int, npt.NDArray[Any]]]:
    """Check the header and locate the sections.

    Returns:
        The header's record, and for each known section number its array of records.  Sections of
        unknown numbers are skipped: a newer writer may add some.

    Raises:
        IncompatibleSegment, SegmentError: As ``argus.segment.reader.read``.
    """
    header = _header(snapshot, len(snapshot))
    sections = {
        number: np.frombuffer(snapshot, layout.RECORDS[_NAMES[number]], records, offset)
        for number, (offset, records) in _places(header, _NAMES, layout.RECORDS, _CAPS).items()
    }
    return header, sections


def state_extent(beginning: Bytes, size: int) -> int:
    """How much of a segment's beginning holds what is read at every scrape.

    Args:
        beginning: The file's first bytes, the header's at least.
        size: Bytes of the whole file.

    Raises:
        IncompatibleSegment, SegmentError: As ``argus.segment.reader.read``.
    """
    header = _header(beginning, size)
    places = _places(header, _NAMES, layout.RECORDS, _CAPS)
    extent: int = layout.HEADER.itemsize
    for number, (offset, records) in places.items():
        extent = max(extent, offset + records * layout.RECORDS[_NAMES[number]].itemsize)
    if extent > STATE_BYTES:
        raise SegmentError("the sections are scattered; remove the file")
    return extent


def shorten(snapshot: bytearray) -> None:
    """Make a segment's beginning a segment of its own, that lacks what was cut off."""
    np.frombuffer(snapshot, layout.HEADER, 1)["total_bytes"] = len(snapshot)


def on_demand_places(beginning: Bytes, size: int) -> dict[str, tuple[int, int]]:
    """Offset and number of records of the other sections, by name; see ``state_extent``."""
    header = _header(beginning, size)
    places = _places(header, _ON_DEMAND_NAMES, layout.ON_DEMAND_RECORDS, _ON_DEMAND_CAPS)
    return {_ON_DEMAND_NAMES[number]: place for number, place in places.items()}


def require(sections: dict[int, npt.NDArray[Any]], name: str) -> npt.NDArray[Any]:
    """The section's records; SegmentError when there are none."""
    records = sections.get(layout.SECTIONS[name])
    if records is None or not len(records):
        raise SegmentError(f"section {name} is missing; remove the file")
    return records


def _header(snapshot: Bytes, size: int) -> Any:
    if len(snapshot) < layout.HEADER.itemsize:
        raise SegmentError(f"{len(snapshot)} bytes are too few for a segment; remove the file")
    if size > MAX_BYTES:
        raise SegmentError(f"{size} bytes are too many for a segment; remove the file")
    header = np.frombuffer(snapshot, layout.HEADER, 1)[0]
    if bytes(header["magic"]) != layout.MAGIC:
        raise SegmentError("not an ARGUS segment (wrong magic); remove the file")
    if int(header["byte_order"]) != layout.CONSTANTS["BYTE_ORDER"]:
        raise SegmentError("written on a machine of another byte order; run the exporter on that machine")
    version, mine = int(header["layout_version"]), layout.CONSTANTS["LAYOUT_VERSION"]
    if version != mine:
        older = "exporter" if version > mine else "training job's argus-gpu package"
        raise IncompatibleSegment(
            f"segment layout {version}, this exporter reads layout {mine}; upgrade the {older}"
        )
    if int(header["header_bytes"]) != layout.HEADER.itemsize:
        raise SegmentError("the header's size is wrong; remove the file")
    if int(header["sections"]) > layout.CONSTANTS["MAX_SECTIONS"]:
        raise SegmentError("the header lists too many sections; remove the file")
    if int(header["total_bytes"]) > size:
        raise SegmentError(f"truncated: {size} of {int(header['total_bytes'])} bytes; remove the file")
    return header


def _places(
    header: Any, names: Mapping[int, str], types: Mapping[str, np.dtype[Any]], caps: Mapping[str, int]
) -> dict[int, tuple[int, int]]:
    """Offset and number of records of those sections that have a name."""
    places: dict[int, tuple[int, int]] = {}
    for entry in header["section"][: int(header["sections"])]:
        number = int(entry["id"])
        if number not in names:
            continue
        if number in places:
            raise SegmentError(f"section {names[number]} is listed twice; remove the file")
        places[number] = _place(header, entry, names[number], types[names[number]], caps[names[number]])
    return places


def _place(header: Any, entry: Any, name: str, dtype: np.dtype[Any], cap: int) -> tuple[int, int]:
    offset, records = int(entry["offset"]), int(entry["records"])
    if int(entry["record_bytes"]) != dtype.itemsize:
        raise SegmentError(f"records of section {name} have a wrong size; remove the file")
    if records > cap:
        raise SegmentError(f"section {name} has too many records; remove the file")
    if offset % 8 or offset < layout.HEADER.itemsize:
        raise SegmentError(f"section {name} is misplaced; remove the file")
    if offset + records * dtype.itemsize > int(header["total_bytes"]):
        raise SegmentError(f"section {name} reaches beyond the file's end; remove the file")
    return offset, records
