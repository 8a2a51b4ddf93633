"""The device's side of a segment, and how it changes what the host's side says.

On CUDA the host only launches, so its clock says nothing about computing.
Where kernels are traced:

- the seconds of compute phases are device seconds: union of the kernels and
  copies that the phase launched, without communication. Phases of kind mixed
  become compute, for the waiting is in the communication kernels and apart;
- communication phases are timed on the device, where they launched kernels;
- communication that another phase launched appears under that phase's name
  with kind communication;
- ``gpu_idle`` and, where CUDA compiled anything, ``jit_compile`` are host
  phases of their own;
- busy is the union of computing, host phases and idleness;
- an iteration exists once its kernels are complete.

Where kernels can't be told apart by phase, compute phases become mixed, which
accuses nobody; where they are not told at all any more, compute is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from argus.segment import layout
from argus.segment.state import Durations, Phase, RankState

QUANTILES = ("0.5", "0.9", "0.99")
"""Of one kernel's duration over the window, in the segment's order."""

_ATTRIBUTIONS = ("undecided", "none", "memset", "call", "api")
_OUTSIDE = layout.CONSTANTS["DEVICE_OUTSIDE"]
_PHASES = layout.CONSTANTS["DEVICE_PHASES"]
_OTHER = layout.CONSTANTS["OTHER_PHASE"]
_MOST = np.uint64(1 << 53)

# Columns of a merged iteration's phases: the host's, then these.
_IDLE = _OUTSIDE
_JIT = _OUTSIDE + 1
_COMMUNICATION = _OUTSIDE + 2
_COLUMNS = _COMMUNICATION + _PHASES

_BEHIND = 8
"""Iterations that the device's records may be behind the host's before they count as lost."""


@dataclass(frozen=True)
class KernelClass:
    """Kernels of one class.

    Attributes:
        seconds: Since the rank began.
        window_count: Kernels in the window, 0 where there is none.
        window_ns: Nanoseconds of one kernel, for each of ``QUANTILES``.
    """

    name: str
    seconds: Durations
    window_count: int
    window_ns: tuple[int, ...]


@dataclass(frozen=True)
class Device:
    """What the kernel library wrote.

    Attributes:
        attribution: How kernels find their phase; ``none``: they don't.
        iterations: Ordinal of the last iteration that was told, 0 before the first.
        incomplete: Iterations that could not be told.
        gaps, gap_ns: How often, and how long, another profiler had CUPTI.
        memory: Bytes of record buffers in use.
        dropped: Records lost, by cause.
        phases: Structured array, by index of the host's phases.
        slots: Structured array of iterations, unordered.
    """

    attribution: str
    records: int
    iterations: int
    incomplete: int
    gaps: int
    gap_ns: int
    busy_ns: int
    jit_ns: int
    memory: int
    dropped: dict[str, int]
    classes: tuple[KernelClass, ...]
    phases: npt.NDArray[Any]
    slots: npt.NDArray[Any]

    def seconds(self, index: int) -> Durations:
        """Histogram of one phase; ``gpu_idle`` in the last record."""
        return _durations(self.phases[index]["seconds"])


def read(sections: dict[int, npt.NDArray[Any]]) -> Device | None:
    """The device's sections; None where there are none, or no kernel was seen."""
    number = layout.SECTIONS
    state, kernels = sections.get(number["DEVICE"]), sections.get(number["KERNELS"])
    phases, ring = sections.get(number["DEVICE_PHASES"]), sections.get(number["DEVICE_ITERATIONS"])
    if state is None or kernels is None or phases is None or ring is None:
        return None
    if len(state) != 1 or len(phases) != _PHASES or not int(state[0]["records"]):
        return None
    one = state[0]
    attribution = int(one["attribution"])
    causes = [name for name in layout.RECORDS["DEVICE"].names or () if name.startswith("dropped_")]
    return Device(
        attribution=_ATTRIBUTIONS[attribution] if attribution < len(_ATTRIBUTIONS) else "undecided",
        records=int(one["records"]),
        iterations=int(one["iterations"]),
        incomplete=int(one["incomplete"]),
        gaps=int(one["gaps"]),
        gap_ns=int(one["gap"]),
        busy_ns=int(one["busy"]),
        jit_ns=int(one["jit"]),
        memory=int(one["memory"]),
        dropped={name.removeprefix("dropped_"): int(one[name]) for name in causes},
        classes=tuple(_classes(kernels, int(one["classes_used"]))),
        phases=phases,
        slots=_sane(ring),
    )


def _durations(record: Any) -> Durations:
    return Durations(record["bucket"], int(record["sum"]))


def _classes(records: npt.NDArray[Any], used: int) -> Iterable[KernelClass]:
    names: set[str] = set()
    for record in records[: min(used, len(records))]:
        name = bytes(record["name"]).split(b"\0", 1)[0].decode("ascii", errors="replace")
        quantiles = tuple(int(value) for value in record["window_quantile"])
        sane = record["seconds"]["sum"] <= _MOST and (record["seconds"]["bucket"] <= _MOST).all()
        if not name.isidentifier() or name in names or not sane or max(quantiles) > int(_MOST):
            continue
        names.add(name)
        yield KernelClass(name, _durations(record["seconds"]), int(record["window_count"]), quantiles)


def _sane(ring: npt.NDArray[Any]) -> npt.NDArray[Any]:
    good = (ring["ordinal"] != 0) & (ring["seq"] & np.uint64(1) == 0)
    for field in ("idle", "busy", "jit"):
        good &= ring[field] <= _MOST
    for field in ("compute", "communication"):
        good &= (ring[field] <= _MOST).all(axis=1)
    slots: npt.NDArray[Any] = ring[good]
    return slots


def merge(host: RankState, device: Device | None) -> RankState:
    """The rank with the device's seconds where kernels are traced."""
    if device is None:
        return host
    told, both = _join(host.slots, device.slots)
    newest = int(host.slots["ordinal"][-1]) if len(host.slots) else 0
    if newest - device.iterations > max(_BEHIND, _within_window(host)):
        phases = tuple(phase for phase in host.phases if not _on_device(phase))
        slots = host.slots.copy()
        slots["busy"] = 0
        return replace(host, phases=phases, slots=slots, device=device)
    attributed = device.attribution != "none" and bool(len(both)) and bool(both["attributed"].all())
    phases = (*_phases(host.phases, device, attributed), *_derived(host.phases, device, attributed))
    return replace(
        host,
        phases=phases,
        slots=_slots(told, both, host.phases, attributed),
        busy_sum_ns=device.busy_ns,
        device=device,
    )


def _within_window(host: RankState) -> int:
    """Iterations of the last 10 s: so many may still wait for their records."""
    return int(np.count_nonzero(host.slots["end"] + np.uint64(10_000_000_000) >= np.uint64(host.now_ns)))


def _join(host: npt.NDArray[Any], device: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """The iterations that both know, in order."""
    _, left, right = np.intersect1d(host["ordinal"], device["ordinal"], return_indices=True)
    return host[left], device[right]


def _on_device(phase: Phase) -> bool:
    """Whether the host's clock says nothing about it; the phase that collects the surplus stays mixed."""
    return phase.kind == "compute" or (phase.kind == "mixed" and phase.index != _OTHER)


def _device_communication(device: Device, index: int) -> int:
    return min(int(device.phases[index]["communication"]), int(_MOST))


def _phases(phases: tuple[Phase, ...], device: Device, attributed: bool) -> Iterable[Phase]:
    for phase in phases:
        if not attributed:
            yield replace(phase, kind="mixed") if phase.kind == "compute" else phase
        elif _on_device(phase):
            yield replace(phase, kind="compute", seconds=device.seconds(phase.index))
        elif phase.kind == "communication" and _device_communication(device, phase.index):
            yield replace(phase, seconds=device.seconds(phase.index))
        else:
            yield phase


def _derived(phases: tuple[Phase, ...], device: Device, attributed: bool) -> Iterable[Phase]:
    names = {phase.name for phase in phases}
    nothing = np.zeros(layout.CONSTANTS["HISTOGRAM_BUCKETS"], np.uint64)
    if "gpu_idle" not in names:
        yield Phase(_IDLE, "gpu_idle", "host", device.seconds(_OUTSIDE))
    if device.jit_ns and "jit_compile" not in names:
        yield Phase(_JIT, "jit_compile", "host", Durations(nothing, device.jit_ns))
    for phase in phases if attributed else ():
        launched = _device_communication(device, phase.index)
        if launched and phase.kind != "communication":
            yield Phase(
                _COMMUNICATION + phase.index, phase.name, "communication", Durations(nothing, launched)
            )


def _slots(
    host: npt.NDArray[Any], device: npt.NDArray[Any], phases: tuple[Phase, ...], attributed: bool
) -> npt.NDArray[Any]:
    """The joined iterations, with columns for what the host's do not have."""
    description = [
        (name, host.dtype[name]) if name != "phase" else (name, np.uint64, (_COLUMNS,))
        for name in host.dtype.names or ()
    ]
    slots = np.zeros(len(host), np.dtype(description))
    for name in host.dtype.names or ():
        if name != "phase":
            slots[name] = host[name]
    seconds = slots["phase"]
    seconds[:, : host["phase"].shape[1]] = host["phase"]
    for phase in phases if attributed else ():
        own = device["communication"][:, phase.index]
        if _on_device(phase):
            seconds[:, phase.index] = device["compute"][:, phase.index]
        elif phase.kind == "communication" and own.any():
            seconds[:, phase.index] = own
    seconds[:, _COMMUNICATION:] = device["communication"]
    for phase in phases:
        if phase.name == "jit_compile":  # CUDA may compile inside of it, or on its own: at least the longer
            seconds[:, phase.index] = np.maximum(seconds[:, phase.index], device["jit"])
    seconds[:, _IDLE] = device["idle"]
    seconds[:, _JIT] = device["jit"]
    slots["busy"] = device["busy"]
    return slots
