"""From Perfetto's bytes back to traces of ranks: only what ``argus.flight.perfetto.write`` wrote.

So files of several nodes, each written there, become one.  The bytes are from
elsewhere and not trusted.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import DecodeError

from argus.flight.model import RankTrace, Slice
from argus.flight.perfetto.messages import SLICE_BEGIN, SLICE_END, STATE_CLEARED, Trace
from argus.flight.perfetto.write import FIRST_PID

MAX_BYTES = 512 << 20
"""Of a trace, uncompressed; sixteen ranks with 65,536 phases and as many kernels each need less."""
_LANE = re.compile(r" \(\d+\)\Z")


class TraceError(ValueError):
    """The bytes are no trace of ours, or a damaged one; the message says so."""


@dataclass
class _Track:
    name: str
    process: int
    slices: list[Slice] = field(default_factory=list)
    stack: list[Slice] = field(default_factory=list)


@dataclass
class _Sequence:
    names: dict[int, str] = field(default_factory=dict)
    arguments: dict[int, str] = field(default_factory=dict)


def decompress(content: bytes) -> bytes:
    """The trace itself, where it is compressed with gzip.

    Raises:
        TraceError: Too large, or damaged.
    """
    if not content.startswith(b"\x1f\x8b"):
        return content
    inflater = zlib.decompressobj(wbits=31)
    try:
        result = inflater.decompress(content, MAX_BYTES)
    except zlib.error as error:
        raise TraceError(f"damaged: {error}") from None
    if inflater.unconsumed_tail:
        raise TraceError(f"more than {MAX_BYTES >> 20} MiB, which is too large")
    if not inflater.eof:
        raise TraceError("cut short; fetch it again")
    return result


def parse(content: bytes) -> list[RankTrace]:
    """Read a trace, compressed or not.

    Raises:
        TraceError: It was not written by ARGUS, or is damaged.
    """
    message = Trace()
    try:
        message.ParseFromString(decompress(content))
    except DecodeError:
        raise TraceError("not a Perfetto trace") from None
    processes: dict[int, Any] = {}
    tracks: dict[int, _Track] = {}
    sequences: dict[int, _Sequence] = {}
    for packet in message.packet:
        sequence = packet.trusted_packet_sequence_id
        if packet.sequence_flags & STATE_CLEARED or sequence not in sequences:
            sequences[sequence] = _Sequence()
        if packet.HasField("track_descriptor"):
            descriptor = packet.track_descriptor
            if descriptor.HasField("process"):
                processes[descriptor.uuid] = descriptor.process
            else:
                name = _LANE.sub("", _text(descriptor.name))
                tracks[descriptor.uuid] = _Track(name, descriptor.parent_uuid)
        elif packet.HasField("track_event"):
            _event(packet, sequences[sequence], tracks)
    traces = [_rank(uuid, process, tracks) for uuid, process in processes.items()]
    if not traces:
        raise TraceError("no rank is in it; argus trace merges only what argus trace or the exporter wrote")
    return traces


def _event(packet: Any, interned: _Sequence, tracks: dict[int, _Track]) -> None:
    for table, known in (("event_names", interned.names), ("debug_annotation_names", interned.arguments)):
        for entry in getattr(packet.interned_data, table):
            known[entry.iid] = _text(entry.name)
    event = packet.track_event
    track = tracks.get(event.track_uuid)
    if track is None:
        raise TraceError("an event is on a track that is not there")
    if event.type == SLICE_BEGIN:
        arguments = tuple(
            (
                interned.arguments.get(each.name_iid, "?"),
                _text(each.string_value) if each.HasField("string_value") else int(each.uint_value),
            )
            for each in event.debug_annotations
        )
        name = interned.names.get(event.name_iid, "?")
        track.stack.append(Slice(packet.timestamp, None, name, arguments))
    elif event.type == SLICE_END:
        if not track.stack:
            raise TraceError("an interval ends that did not begin")
        track.slices.append(track.stack.pop()._replace(end=packet.timestamp))


def _rank(uuid: int, process: Any, tracks: dict[int, _Track]) -> RankTrace:
    known: dict[str, str] = {}
    notes = []
    for label in process.process_labels:
        name, _, value = _text(label).partition("=")
        if name == "note":
            notes.append(value)
        else:
            known[name] = value
    rank = process.pid - FIRST_PID
    if "clock" not in known or rank < 0:
        raise TraceError(
            "a process in it is no rank; argus trace merges only what argus trace or the exporter wrote"
        )
    result = RankTrace(
        run_id=known.get("run", ""),
        role=known.get("role", ""),
        rank=rank,
        node=known.get("node", ""),
        attempt=_number(known.get("attempt", "")),
        clock=known["clock"],
        wall_ns=_number(known.get("wall", "")),
        notes=tuple(notes),
    )
    for track in tracks.values():
        if track.process == uuid:
            result.tracks.setdefault(track.name, []).extend([*track.slices, *track.stack])
    return result


def _text(text: str | bytes) -> str:
    """protobuf gives bytes where a string is not UTF-8."""
    return text if isinstance(text, str) else text.decode("utf-8", "replace")


def _number(text: str) -> int:
    match = re.fullmatch(r"-?\d{1,19}", text, re.ASCII)
    return int(text) if match else 0
