"""How much the flight recorder remembers: ``ARGUS_FLIGHT_EVENTS``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from argus import _native

DEFAULT_EVENTS = 16_384
"""32 bytes each: half a megabyte, for a ring of phases and another of kernels."""
_MOST: int = _native.layout()["constants"]["FLIGHT_MOST"]
_EVENT_BYTES: int = _native.layout()["structs"]["flight_event"]["size"]
_SHARE = 20
"""The recorder takes at most this part of what is free where the segment lies: /dev/shm is also
NCCL's and the data loaders', and only 64 MiB in many containers."""


@dataclass(frozen=True)
class FlightSizes:
    """Events of the ring of phases, and of that of kernels; 0: none.

    Attributes:
        complaint: What the user should know, one line; empty: nothing.
    """

    events: int = 0
    kernels: int = 0
    complaint: str = ""


def sizes(environment: Mapping[str, str], directory: str) -> FlightSizes:
    """What to keep: as many events as the user says, nothing where memory is short.

    Args:
        environment: As ``os.environ``.
        directory: Where the segment will lie, or a parent of it.
    """
    text = environment.get("ARGUS_FLIGHT_EVENTS", "").strip()
    events, complaint = DEFAULT_EVENTS, ""
    if text.isascii() and text.isdigit():
        events = min(int(text[:10]), _MOST)
    elif text:
        complaint = (
            f"ARGUS_FLIGHT_EVENTS={text!r} is no number of events; {events} are kept "
            f"(0 turns the flight recorder off, {_MOST} is the most)"
        )
    kernels = events if has_gpu(environment) else 0
    needed = (events + kernels) * _EVENT_BYTES
    free = _free_bytes(directory)
    if needed and free is not None and needed > free // _SHARE:
        return FlightSizes(
            complaint=f"the flight recorder is off: {needed >> 10} KiB would be more than a twentieth of "
            f"what is free in {directory}; make room there, or set ARGUS_FLIGHT_EVENTS to a smaller "
            f"number than {events} (0: off)"
        )
    return FlightSizes(events, kernels, complaint)


def has_gpu(environment: Mapping[str, str]) -> bool:
    """Whether this process might trace kernels."""
    nodes = ("/dev/nvidiactl", "/dev/dxg")
    return bool(environment.get("CUDA_INJECTION64_PATH")) or any(os.path.exists(node) for node in nodes)


def _free_bytes(directory: str) -> int | None:
    try:
        status = os.statvfs(directory)
    except OSError:
        return None  # creating the segment will say what is wrong
    return status.f_bavail * status.f_frsize
