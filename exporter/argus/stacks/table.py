"""The stacks in a segment, as its sampler counted them (``native/stack_store.h``).

The bytes are hostile input: what makes no sense is left out.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from argus import _native
from argus.segment import layout
from argus.segment.sections import SegmentError, on_demand_places

_CATEGORIES = _native.stack_categories()
_DTYPE = layout.ON_DEMAND_RECORDS["STACK_GENERATIONS"]
_NODES = layout.CONSTANTS["STACK_NODES"]
_TEXT = layout.CONSTANTS["STACK_TEXT"]
_MOST = 1 << 53
_DEEPEST = 256

Read = Callable[[int, int], bytes]
"""Bytes of a segment: offset and length, fewer where it ends before."""


@dataclass(frozen=True)
class Stack:
    """One stack and how often it was met.

    Attributes:
        functions: ``module:qualified.name`` from the outermost inwards; the first one names the group
            of threads.
        line: Where the innermost function was when it was met last; 0: unknown.
        category: What it was busy with then.
        samples: Ticks of the sampler's clock.
    """

    functions: tuple[str, ...]
    line: int
    category: str
    samples: int


@dataclass(frozen=True)
class StackTable:
    """The stacks of the last minutes.

    Attributes:
        begin_ns, end_ns: First moment and last sample, on the segment's clock.
        cut: Samples whose inner functions found no room.
        stacks: Each stack once, most frequent first.
    """

    begin_ns: int
    end_ns: int
    cut: int
    stacks: tuple[Stack, ...]

    @property
    def samples(self) -> int:
        return sum(stack.samples for stack in self.stacks)


def take(read: Read, size: int) -> StackTable | None:
    """Copy the stacks of a segment; None where they are not sampled.

    Args:
        read: Returns the segment's bytes.
        size: Bytes of the segment.

    Raises:
        SegmentError: The header or the directory of sections is bad.
        OSError: From ``read``.
    """
    place = on_demand_places(read(0, layout.HEADER.itemsize), size).get("STACK_GENERATIONS")
    if place is None:
        return None
    offset, count = place

    def copy() -> npt.NDArray[Any]:
        content = read(offset, count * _DTYPE.itemsize)
        if len(content) < count * _DTYPE.itemsize:
            raise SegmentError("truncated while it was read; remove the file")
        return np.frombuffer(content, _DTYPE, count)

    # What the first copy counts was complete before the second; the third tells what was used again.
    before, middle, after = copy(), copy(), copy()
    whole = [
        (int(first["ordinal"]), first, found)
        for first, found, last in zip(before, middle, after, strict=True)
        if first["ordinal"] and first["ordinal"] == found["ordinal"] == last["ordinal"]
    ]
    return _table([(first, found) for _, first, found in sorted(whole, key=lambda item: item[0])])


def take_file(fd: int) -> StackTable | None:
    """``take`` from a file, without mapping it."""
    return take(lambda offset, length: os.pread(fd, length, offset), os.fstat(fd).st_size)


def _table(generations: list[tuple[Any, Any]]) -> StackTable:
    merged: dict[tuple[str, ...], Stack] = {}
    for first, found in generations:
        for stack in _stacks(found, min(int(first["nodes"]), _NODES), min(int(first["text"]), _TEXT)):
            known = merged.get(stack.functions)
            earlier = known.samples if known is not None else 0
            merged[stack.functions] = Stack(
                stack.functions, stack.line, stack.category, stack.samples + earlier
            )
    return StackTable(
        begin_ns=min((int(found["begin"]) for _, found in generations), default=0),
        end_ns=max((int(found["end"]) for _, found in generations), default=0),
        cut=min(sum(int(found["cut"]) for _, found in generations), _MOST),
        stacks=tuple(sorted(merged.values(), key=lambda stack: (-stack.samples, stack.functions))),
    )


def _stacks(generation: Any, nodes: int, text: int) -> Iterator[Stack]:
    names = generation["names"].tobytes() if hasattr(generation["names"], "tobytes") else generation["names"]
    names = bytes(names).ljust(_TEXT, b"\0")[:text]
    known: dict[int, str] = {}
    paths: list[tuple[str, ...] | None] = []
    columns = ("parent", "name", "line", "category", "samples")
    records: Iterable[tuple[int, ...]] = zip(
        *(generation["node"][:nodes][column].tolist() for column in columns), strict=True
    )
    for index, (parent, name, line, category, samples) in enumerate(records):
        above = () if parent == 0 else paths[parent - 1] if parent <= index else None
        if above is None or len(above) >= _DEEPEST or name >= text:
            paths.append(None)
            continue
        if name not in known:
            known[name] = _readable(names[name : names.find(b"\0", name)])
        paths.append((*above, known[name]))
        if 0 < samples <= _MOST and above:
            shown = _CATEGORIES[category] if category < len(_CATEGORIES) else "other"
            yield Stack((*above, known[name]), line, shown, samples)


def _readable(raw: bytes) -> str:
    text = raw[:256].decode("utf-8", errors="replace")
    return "".join(c if c.isprintable() else "\ufffd" for c in text) or "?"
