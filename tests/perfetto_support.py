"""Reads traces the way Perfetto does: with Perfetto's own message classes, or its trace processor.

No code of ARGUS's writer or parser is used here.  The rules that are applied
(interned names per sequence, begins and ends matched per track in the order of
time) are those of Perfetto's documentation, "Track events".
"""

from __future__ import annotations

import gzip
import os
import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

from google.protobuf.unknown_fields import UnknownFieldSet
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos


class Slice(NamedTuple):
    """``end`` None: it did not end."""

    begin: int
    end: int | None
    name: str
    depth: int
    arguments: dict[str, Any]


def decode(content: bytes) -> dict[str, dict[str, list[Slice]]]:
    """Slices by process and track, in the order of time.

    Raises:
        AssertionError: Perfetto would not take it as it is meant.
    """
    if content.startswith(b"\x1f\x8b"):
        content = gzip.decompress(content)
    trace = protos.Trace()
    trace.ParseFromString(content)
    assert not UnknownFieldSet(trace)
    processes: dict[int, str] = {}
    tracks: dict[int, tuple[str, int]] = {}
    names: dict[int, dict[int, str]] = defaultdict(dict)
    annotations: dict[int, dict[int, str]] = defaultdict(dict)
    cleared = set()
    events = []
    for packet in trace.packet:
        sequence = packet.trusted_packet_sequence_id
        assert sequence != 0
        for part in (packet, packet.track_descriptor, packet.track_event, packet.interned_data):
            assert not UnknownFieldSet(part), "a field that Perfetto does not know"
        if packet.sequence_flags & protos.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED:
            cleared.add(sequence)
        if packet.HasField("track_descriptor"):
            descriptor = packet.track_descriptor
            assert descriptor.uuid
            if descriptor.HasField("process"):
                processes[descriptor.uuid] = descriptor.process.process_name
            else:
                tracks[descriptor.uuid] = (descriptor.name, descriptor.parent_uuid)
        if packet.HasField("interned_data"):
            names[sequence].update((each.iid, each.name) for each in packet.interned_data.event_names)
            annotations[sequence].update(
                (each.iid, each.name) for each in packet.interned_data.debug_annotation_names
            )
        if packet.HasField("track_event"):
            assert sequence in cleared, "names are used before the sequence began"
            events.append((packet.timestamp, packet.track_event, sequence))
    result: dict[str, dict[str, list[Slice]]] = {name: {} for name in processes.values()}
    stacks: dict[int, list[Slice]] = defaultdict(list)
    for time, event, sequence in sorted(events, key=lambda each: each[0]):
        stack = stacks[event.track_uuid]
        name, parent = tracks[event.track_uuid]
        done = result[processes[parent]].setdefault(name, [])
        if event.type == protos.TrackEvent.TYPE_SLICE_BEGIN:
            arguments = {
                annotations[sequence][each.name_iid]: getattr(each, str(each.WhichOneof("value")))
                for each in event.debug_annotations
            }
            stack.append(Slice(time, None, names[sequence][event.name_iid], len(stack), arguments))
        else:
            assert event.type == protos.TrackEvent.TYPE_SLICE_END
            done.append(stack.pop()._replace(end=time))
    for uuid, stack in stacks.items():
        name, parent = tracks[uuid]
        result[processes[parent]][name] += stack
    for lanes in result.values():
        for slices in lanes.values():
            slices.sort(key=lambda each: (each.begin, each.depth))
    return result


def trace_processor() -> Path | None:
    """Perfetto's trace processor, if it is on this machine; Perfetto's package fetches it on first use."""
    named = os.environ.get("ARGUS_TRACE_PROCESSOR")
    if named:
        return Path(named)
    found = shutil.which("trace_processor_shell") or shutil.which("trace_processor")
    if found:
        return Path(found)
    kept = sorted(Path.home().glob(".local/share/perfetto/prebuilts/trace_processor_shell-*"))
    return kept[-1] if kept else None
