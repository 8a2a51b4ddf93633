"""Numpy types of the segment's structures, from the one definition in ``native/layout.h``."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from argus import _native

_TABLE: Final = _native.layout()
_CONSTANTS: Final[dict[str, Any]] = _TABLE["constants"]
_STRUCTS: Final[dict[str, Any]] = _TABLE["structs"]

CONSTANTS: Final[dict[str, int]] = {k: v for k, v in _CONSTANTS.items() if isinstance(v, int)}
"""The header file's numbers, without their ``ARGUS_`` prefix."""

MAGIC: Final[bytes] = _CONSTANTS["MAGIC"]

SECTIONS: Final[dict[str, int]] = {
    name.removeprefix("SECTION_"): number for name, number in CONSTANTS.items() if name.startswith("SECTION_")
}
"""``enum argus_section_id``, by name without its prefix."""


def _dtype(struct: str) -> np.dtype[Any]:
    fields = _STRUCTS[struct]["fields"]
    formats = []
    for _, kind, count in fields.values():
        base = _dtype(kind) if kind in _STRUCTS else np.dtype(kind)
        formats.append((base, count) if count > 1 else base)
    description = {
        "names": list(fields),
        "formats": formats,
        "offsets": [offset for offset, _, _ in fields.values()],
        "itemsize": _STRUCTS[struct]["size"],
    }
    return np.dtype(description)  # type: ignore[call-overload, no-any-return]


HEADER: Final = _dtype("header")

RECORDS: Final[dict[str, np.dtype[Any]]] = {
    "IDENTITY": _dtype("identity"),
    "STATE": _dtype("state"),
    "ITERATION_HISTOGRAM": _dtype("histogram"),
    "PHASES": _dtype("phase"),
    "COLLECTIVES": _dtype("collective"),
    "ITERATIONS": _dtype("iteration"),
    "WORK": _dtype("work"),
    "WORK_ITERATIONS": _dtype("work_iteration"),
    "SOURCES": _dtype("source"),
    "KERNELS": _dtype("kernel"),
    "DEVICE": _dtype("device"),
    "DEVICE_PHASES": _dtype("device_phase"),
    "DEVICE_ITERATIONS": _dtype("device_iteration"),
    "STACKS": _dtype("stacks"),
}
"""The record of each section that is read at every scrape."""

ON_DEMAND_RECORDS: Final[dict[str, np.dtype[Any]]] = {
    "FLIGHT": _dtype("flight_ring"),
    "FLIGHT_EVENTS": _dtype("flight_event"),
    "FLIGHT_NAMES": _dtype("flight_name"),
    "FLIGHT_KERNELS": _dtype("flight_event"),
    "FLIGHT_KERNEL_NAMES": _dtype("flight_name"),
    "STACK_GENERATIONS": _dtype("stack_generation"),
}
"""The record of each section of the flight recorder and of stacks, which are read only when somebody asks."""
