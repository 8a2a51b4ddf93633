"""From traces of ranks to Perfetto's bytes.

One process per rank, its tracks below it.  Times are those of the ranks'
clocks, which have to be the same for all ranks by now (``argus.flight.clocks``).
What Perfetto does not show is in the process's labels, so that
``argus.flight.perfetto.parse`` gets everything back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

from argus.flight.model import RankTrace, Slice, lanes
from argus.flight.perfetto.messages import (
    BOOTTIME,
    EXPLICIT_ORDER,
    MONOTONIC,
    NEEDS_STATE,
    REALTIME,
    SLICE_BEGIN,
    SLICE_END,
    STATE_CLEARED,
    Trace,
)

FIRST_PID = 1_000_000
"""Process ids are this plus the rank: a process 0 would be taken for the idle one."""
_PACKETS = 4096
"""So many are encoded together."""
_MOST_RANK = (1 << 31) - FIRST_PID - 1
_LATEST_NS = (1 << 63) - 1
_LARGEST = (1 << 64) - 1


def encode(traces: Iterable[RankTrace]) -> Iterator[bytes]:
    """The parts of a trace file, one after the other; their concatenation is one, too."""
    traces = sorted(traces, key=lambda trace: trace.key)
    yield _clocks(traces).SerializeToString()
    for number, trace in enumerate(traces, start=1):
        yield from _Rank(trace, number).encode()


def labels(trace: RankTrace) -> list[str]:
    """What is known of the rank besides its number; ``name=value`` each."""
    return [
        f"run={trace.run_id}",
        f"role={trace.role}",
        f"node={trace.node}",
        f"attempt={trace.attempt}",
        f"clock={trace.clock}",
        f"wall={trace.wall_ns}",
        *(f"note={note}" for note in trace.notes),
    ]


def _clocks(traces: list[RankTrace]) -> Any:
    """Tells Perfetto the wall-clock time; by the first rank's machine, all times are its."""
    message = Trace()
    if traces:
        first = traces[0]
        begins = [slices[0].begin for slices in first.tracks.values() if slices]
        moment = max(min(begins, default=1), 1)
        wall = moment + first.wall_ns
        if 0 < wall <= _LATEST_NS:
            packet = message.packet.add(trusted_packet_sequence_id=len(traces) + 1)
            for clock, time in ((BOOTTIME, moment), (MONOTONIC, moment), (REALTIME, wall)):
                packet.clock_snapshot.clocks.add(clock_id=clock, timestamp=time)
    return message


class _Rank:
    """Writes one rank; its names are interned in a sequence of its own."""

    def __init__(self, trace: RankTrace, sequence: int) -> None:
        self._trace = trace
        self._sequence = sequence
        self._names: dict[str, int] = {}
        self._arguments: dict[str, int] = {}
        self._message: Any = Trace()
        self._process = _uuid(trace, "")

    def encode(self) -> Iterator[bytes]:
        self._describe()
        for track, slices in self._trace.tracks.items():
            for number, lane in enumerate(lanes(slices)):
                uuid = _uuid(self._trace, f"{track}\0{number}")
                for packet in _packets(lane):
                    self._event(uuid, *packet)
                    if len(self._message.packet) >= _PACKETS:
                        yield self._flush()
        yield self._flush()

    def _flush(self) -> bytes:
        encoded: bytes = self._message.SerializeToString()
        self._message = Trace()
        return encoded

    def _packet(self, flags: int) -> Any:
        return self._message.packet.add(trusted_packet_sequence_id=self._sequence, sequence_flags=flags)

    def _describe(self) -> None:
        trace = self._trace
        process = self._packet(STATE_CLEARED).track_descriptor
        process.uuid = self._process
        process.child_ordering = EXPLICIT_ORDER
        process.process.pid = FIRST_PID + min(trace.rank, _MOST_RANK)
        process.process.process_name = (
            f"rank {trace.rank} ({', '.join(filter(None, (trace.role, trace.node)))})"
        )
        process.process.process_labels.extend(labels(trace))
        for order, (track, slices) in enumerate(trace.tracks.items()):
            for number in range(len(lanes(slices))):
                child = self._packet(NEEDS_STATE).track_descriptor
                child.uuid = _uuid(trace, f"{track}\0{number}")
                child.parent_uuid = self._process
                child.name = track if number == 0 else f"{track} ({number + 1})"
                child.sibling_order_rank = order

    def _event(self, uuid: int, time: int, slice_: Slice | None) -> None:
        packet = self._packet(NEEDS_STATE)
        packet.timestamp = min(max(time, 0), _LATEST_NS)
        event = packet.track_event
        event.track_uuid = uuid
        if slice_ is None:
            event.type = SLICE_END
            return
        event.type = SLICE_BEGIN
        event.name_iid = self._intern(packet, "event_names", self._names, slice_.name)
        for name, value in slice_.arguments:
            annotation = event.debug_annotations.add()
            annotation.name_iid = self._intern(packet, "debug_annotation_names", self._arguments, name)
            if isinstance(value, int):
                annotation.uint_value = min(max(value, 0), _LARGEST)
            else:
                annotation.string_value = value

    @staticmethod
    def _intern(packet: Any, table: str, known: dict[str, int], name: str) -> int:
        number = known.get(name)
        if number is None:
            number = known[name] = len(known) + 1
            getattr(packet.interned_data, table).add(iid=number, name=name)
        return number


def _packets(lane: list[Slice]) -> Iterator[tuple[int, Slice | None]]:
    """Begins and ends in the order in which they nest, None for an end; open ones have none."""
    stack: list[int | None] = []
    for each in lane:
        while stack and (end := stack[-1]) is not None and end <= each.begin:
            stack.pop()
            yield end, None
        yield each.begin, each
        stack.append(each.end)
    while stack and (end := stack.pop()) is not None:
        yield end, None


def _uuid(trace: RankTrace, track: str) -> int:
    text = f"{trace.run_id}\0{trace.rank}\0{track}".encode("utf-8", "replace")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") or 1
