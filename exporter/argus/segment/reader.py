"""From a segment's bytes to a ``RankState``.

The bytes are hostile input: nothing in them is trusted before it was checked.
A bad header makes the segment unreadable; a bad record is left out and counted.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from argus import _native
from argus.segment import device, layout
from argus.segment.sections import Bytes, IncompatibleSegment, SegmentError, directory, require
from argus.segment.state import (
    KINDS,
    Collective,
    Durations,
    Identity,
    Open,
    Phase,
    RankState,
    RunState,
    Source,
    Work,
)

__all__ = ["IncompatibleSegment", "RankState", "SegmentError", "read"]

_MOST = np.uint64(1 << 53)
"""Larger counts and nanoseconds (104 days) are no measurement; sums of fewer stay exact in doubles."""
_BEGIN_BITS = 56
_NO_PHASE = (1 << 64) - 1


def read(snapshot: Bytes, now_ns: int) -> RankState:
    """Read a consistent copy of a segment.

    Args:
        snapshot: Its bytes, from ``Segment.snapshot()`` or ``argus.segment.snapshot.take``.
        now_ns: Now, on the clock of the segment's points in time (CLOCK_MONOTONIC of a live rank).

    Raises:
        IncompatibleSegment: Written by another version of the layout.
        SegmentError: Not a segment, or a damaged one.
    """
    header, sections = directory(snapshot)
    identity = _identity(require(sections, "IDENTITY")[0])
    state = require(sections, "STATE")[0]
    ring = require(sections, "ITERATIONS")
    try:
        run_state = RunState(int(state["run_state"]))
    except ValueError:
        raise SegmentError(f"unknown run state {int(state['run_state'])}; remove the file") from None

    skipped = _Skipped()
    phases = _phases(sections.get(layout.SECTIONS["PHASES"]), int(state["phases_used"]), skipped)
    completed = int(state["iterations"])
    host = RankState(
        now_ns=now_ns,
        incarnation_ns=int(header["incarnation"]),
        created_ns=int(header["created"]),
        writer_version=_text(header["writer_version"]),
        identity=identity,
        run_state=run_state,
        completed=completed,
        last_iteration=int(state["last_iteration"]) if completed else None,
        last_iteration_end_ns=int(state["last_iteration_end"]) if completed else 0,
        iteration_sum_ns=int(state["iteration_sum"]),
        busy_sum_ns=int(state["busy_sum"]),
        open=_open(state, phases, now_ns),
        iteration_seconds=_iteration_seconds(sections, skipped),
        phases=phases,
        collectives=_collectives(
            sections.get(layout.SECTIONS["COLLECTIVES"]), int(state["collectives_used"]), skipped
        ),
        work=_work(sections.get(layout.SECTIONS["WORK"]), int(state["work_used"]), skipped),
        sources=_sources(sections.get(layout.SECTIONS["SOURCES"]), int(state["sources_used"]), skipped),
        slots=_slots(ring, skipped),
        work_slots=_work_slots(sections.get(layout.SECTIONS["WORK_ITERATIONS"]), skipped),
        skipped=skipped.count,
        **_stacks(sections.get(layout.SECTIONS["STACKS"])),
    )
    return device.merge(host, device.read(sections))


class _Skipped:
    """Counts the records left out."""

    count = 0

    def add(self, records: int = 1) -> None:
        self.count += records


def _text(raw: bytes) -> str:
    """Text up to its NUL; what is not UTF-8 or not printable becomes U+FFFD."""
    text = bytes(raw).split(b"\0", 1)[0].decode("utf-8", errors="replace")
    if text.isascii() and text.isprintable():
        return text
    return "".join("\ufffd" if unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp") else c for c in text)


def _identity(record: Any) -> Identity:
    if int(record["seq"]) & 1:
        raise SegmentError("the writer died or is busy in the middle of its identity; it is read again")
    run_id = _text(record["run_id"])
    rank = int(record["rank"])
    if not run_id or rank < 0:
        raise SegmentError("the identity has no run id or no rank; remove the file")
    coordinates = {
        name: max(int(record[name]), -1) for name in ("local_rank", "attempt", "dp", "tp", "pp", "cp", "ep")
    }
    world_size = int(record["world_size"])
    return Identity(
        run_id=run_id,
        role=_text(record["role"]),
        rank=rank,
        node=_text(record["node"]),
        world_size=world_size if world_size > 0 else -1,
        gpu_uuid=_text(record["gpu_uuid"]),
        pci_bus_id=_text(record["pci_bus_id"]),
        **coordinates,
    )


def _durations(record: Any) -> Durations | None:
    """A histogram; an odd ``seq`` may miss the one observation being added, which is no harm."""
    counts = record["bucket"]
    if record["sum"] > _MOST or (counts > _MOST >> np.uint64(9)).any():
        return None
    return Durations(counts, int(record["sum"]))


def _iteration_seconds(sections: dict[int, npt.NDArray[Any]], skipped: _Skipped) -> Durations | None:
    records = sections.get(layout.SECTIONS["ITERATION_HISTOGRAM"])
    if records is None or not len(records):
        return None
    durations = _durations(records[0])
    if durations is None:
        skipped.add()
    return durations


def _used(records: npt.NDArray[Any] | None, used: int) -> Iterator[tuple[int, Any]]:
    if records is not None:
        yield from enumerate(records[: min(used, len(records))])


def _phases(records: npt.NDArray[Any] | None, used: int, skipped: _Skipped) -> tuple[Phase, ...]:
    result: dict[tuple[str, str], Phase] = {}
    other = layout.CONSTANTS["OTHER_PHASE"]
    candidates = list(_used(records, min(used, other)))
    if records is not None and len(records) > other and records[other]["seconds"]["bucket"].any():
        candidates.append((other, records[other]))
    for index, record in candidates:
        name = _text(record["name"]) or ("other" if index == other else "")
        kind = int(record["kind"])
        seconds = _durations(record["seconds"])
        if not name or kind >= len(KINDS) or seconds is None or (name, KINDS[kind]) in result:
            skipped.add()
            continue
        marked = bool(int(record["flags"]) & layout.CONSTANTS["PHASE_DATA_DEPENDENT"])
        result[name, KINDS[kind]] = Phase(index, name, KINDS[kind], seconds, marked)
    return tuple(result.values())


def _collectives(records: npt.NDArray[Any] | None, used: int, skipped: _Skipped) -> tuple[Collective, ...]:
    result: dict[tuple[str, str, str], Collective] = {}
    for index, record in _used(records, min(used, layout.CONSTANTS["MAX_COLLECTIVES"])):
        key = (_text(record["op"]), _text(record["group"]), _text(record["group_id"]))
        seconds = _durations(record["seconds"])
        if not key[0] or not key[1] or seconds is None or key in result:
            skipped.add()
            continue
        result[key] = Collective(
            index,
            *key,
            members=max(int(record["members"]), -1),
            nodes=max(int(record["nodes"]), -1),
            enqueued=int(record["enqueued"]),
            completed=int(record["completed"]),
            bytes=int(record["bytes"]),
            seconds=seconds,
        )
    return tuple(result.values())


def _work(records: npt.NDArray[Any] | None, used: int, skipped: _Skipped) -> tuple[Work, ...]:
    result: dict[tuple[str, str], Work] = {}
    for index, record in _used(records, min(used, layout.CONSTANTS["MAX_WORK"])):
        key = (_text(record["unit"]), _text(record["phase"]))
        total = float(record["total"])
        if not key[0] or not np.isfinite(total) or total < 0 or key in result:
            skipped.add()
            continue
        result[key] = Work(*key, total, index)
    return tuple(result.values())


def _sources(records: npt.NDArray[Any] | None, used: int, skipped: _Skipped) -> tuple[Source, ...]:
    result: dict[str, Source] = {}
    for _, record in _used(records, min(used, layout.CONSTANTS["MAX_SOURCES"])):
        name = _text(record["name"])
        if not name or name in result:
            skipped.add()
            continue
        result[name] = Source(
            name,
            enabled=bool(record["enabled"]),
            events=int(record["events"]),
            dropped=int(record["dropped"]),
            cost_ns=int(record["cost"]),
            last_event_ns=int(record["last_event"]),
        )
    return tuple(result.values())


def _stacks(records: npt.NDArray[Any] | None) -> dict[str, Any]:
    """What the stack sampler counts, as fields of ``RankState``."""
    if records is None or not len(records):
        return {}
    named = zip(_native.stack_categories(), records[0]["samples"].tolist(), strict=False)
    samples = {name: count for name, count in named if count <= int(_MOST)}
    return {"cpu_samples": samples, "stack_interval_ns": min(int(records[0]["interval"]), int(_MOST))}


def _open(state: Any, phases: tuple[Phase, ...], now_ns: int) -> Open | None:
    pause_begin = int(state["pause_begin"])
    if pause_begin:
        return Open(_text(state["pause_kind"]) or "unknown", "pause", min(pause_begin, now_ns))
    word = int(state["open_phase"])
    if word == _NO_PHASE:
        return None
    index, low = word >> _BEGIN_BITS, word & ((1 << _BEGIN_BITS) - 1)
    phase = next((phase for phase in phases if phase.index == index), None)
    if phase is None:
        return None
    begin = (now_ns >> _BEGIN_BITS << _BEGIN_BITS) | low
    if begin > now_ns:
        # Only the lowest bits are stored: either they have wrapped since, or the phase began just now.
        begin = max(begin - (1 << _BEGIN_BITS), 0) if begin - now_ns > 1 << (_BEGIN_BITS - 1) else now_ns
    return Open(phase.name, phase.kind, begin)


def _slots(ring: npt.NDArray[Any], skipped: _Skipped) -> npt.NDArray[Any]:
    """The ring's valid iterations, oldest first."""
    written = ring["ordinal"] != 0
    position = (ring["ordinal"] - np.uint64(1)) % np.uint64(max(len(ring), 1))
    sane = (
        written
        & (ring["seq"] & np.uint64(1) == 0)
        & (position == np.arange(len(ring), dtype=np.uint64))
        & (ring["end"] <= np.uint64(1 << 62))
        & (ring["wall"] <= _MOST)
        & (ring["busy"] <= _MOST)
        & (ring["phase"] <= _MOST).all(axis=1)
        & _sane_collectives(ring["collective"])
    )
    skipped.add(int(np.count_nonzero(written & ~sane)))
    slots = ring[sane]
    ordered: npt.NDArray[Any] = slots[np.argsort(slots["ordinal"])]
    return ordered


def _work_slots(ring: npt.NDArray[Any] | None, skipped: _Skipped) -> npt.NDArray[Any]:
    """Work by iteration, as far as it makes sense; empty where the writer keeps none."""
    if ring is None:
        return np.zeros(0, layout.RECORDS["WORK_ITERATIONS"])
    written = ring["ordinal"] != 0
    sane = (
        written
        & (ring["seq"] & np.uint64(1) == 0)
        & (np.isfinite(ring["amount"]) & (ring["amount"] >= 0)).all(axis=1)
    )
    skipped.add(int(np.count_nonzero(written & ~sane)))
    slots: npt.NDArray[Any] = ring[sane]
    return slots


def _sane_collectives(records: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    bandwidth = records["best_bandwidth"]
    sane: npt.NDArray[np.bool_] = (
        (records["fastest"] <= _MOST)
        & (records["typical"] <= _MOST)
        & (records["occurrences"] <= _MOST)
        & np.isfinite(bandwidth)
        & (bandwidth >= 0)
    ).all(axis=1)
    return sane
