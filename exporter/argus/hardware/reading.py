"""What was read of one GPU, and the series that come of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from argus import catalogue
from argus.catalogue import Metric
from argus.exporter.collectors.labels import rank_labels
from argus.exporter.exposition.families import Point
from argus.exporter.sources import Rank

_NOBODY = ("", "", "")
_UNKNOWN = 0xFFFFFFFF
"""NVML's way to say that a 32-bit value is not available."""


class Value(NamedTuple):
    """One value of a GPU.

    Attributes:
        metric: Its catalogue entry.
        labels: Values of the metric's labels after ``gpu_uuid``.
        number: In the metric's unit.
    """

    metric: Metric
    labels: tuple[str, ...]
    number: float


@dataclass(frozen=True)
class Gpu:
    """Who a GPU is; what NVML does not tell is empty.

    Attributes:
        index: NVML's number.
        uuid: ``GPU-…``, never empty.
        pci_bus_id: As in sysfs, see ``bus_id``.
    """

    index: int
    uuid: str
    pci_bus_id: str = ""
    model: str = ""
    driver_version: str = ""


@dataclass(frozen=True)
class Reading:
    """What a GPU said.

    Attributes:
        at: ``time.monotonic()`` of it.
        values: What it supports.
        mig: UUIDs of its MIG instances.
    """

    at: float
    values: tuple[Value, ...]
    mig: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Status:
    """One GPU at a scrape.

    Attributes:
        gpu: Who it is.
        age_s: Seconds since its values were read, or since it has been asked for them in vain.
        reading: Its last values; None where there are none, or too old ones.
        up: Whether it answers; None: not known.
        xids: By Xid number how often it came, and seconds since the last time.
    """

    gpu: Gpu
    age_s: float
    reading: Reading | None
    up: bool | None
    xids: dict[int, tuple[int, float]] = field(default_factory=dict)


def bus_id(text: str) -> str:
    """A PCI address as sysfs writes it, ``0000:3b:00.0``; NVML has eight digits and capitals."""
    domain, colon, rest = text.strip().lower().partition(":")
    return f"{domain.lstrip('0').rjust(4, '0')}:{rest}" if colon else ""


def known(metric: Metric, number: float | None, *labels: str, scale: float = 1.0) -> Iterator[Value]:
    """The value, if NVML gave one."""
    if number is not None and 0 <= number < math.inf and number != _UNKNOWN:
        yield Value(metric, labels, number * scale if scale != 1.0 else number)


def points(gpus: Iterable[Status], ranks: Iterable[Rank]) -> Iterator[Point]:
    """The series of all GPUs, once for each rank that uses it; with empty rank labels where none does."""
    alive = [rank.state for rank in ranks if rank.up]
    for status in gpus:
        mig = status.reading.mig if status.reading is not None else frozenset()
        names = {status.gpu.uuid, *mig}
        users = [
            rank_labels(state)
            for state in alive
            if state.identity.gpu_uuid in names
            or (status.gpu.pci_bus_id and bus_id(state.identity.pci_bus_id) == status.gpu.pci_bus_id)
        ]
        for user in users or [_NOBODY]:
            yield from _points(status, (*user, status.gpu.uuid))


def _points(status: Status, labels: tuple[str, ...]) -> Iterator[Point]:
    gpu = status.gpu
    yield Point(
        catalogue.GPU_INFO, (*labels, gpu.pci_bus_id, str(gpu.index), gpu.model, gpu.driver_version), 1
    )
    if status.up is not None:
        yield Point(catalogue.GPU_UP, labels, int(status.up))
    yield Point(catalogue.GPU_AGE, labels, round(status.age_s, 3))
    for value in status.reading.values if status.reading is not None else ():
        yield Point(value.metric, (*labels, *value.labels), value.number)
    for xid, (count, age_s) in status.xids.items():
        yield Point(catalogue.GPU_XID, (*labels, str(xid)), count)
        yield Point(catalogue.GPU_XID_AGE, (*labels, str(xid)), round(age_s, 3))
