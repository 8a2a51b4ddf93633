"""The stack sampler of this process: ``ARGUS_STACKS`` and ``ARGUS_STACK_PATTERNS``."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass

from argus import _native

DEFAULT_HZ = 10.0
_MOST_HZ = 50.0
_OFF = ("0", "false", "no", "off")
_ON = ("", "1", "true", "yes", "on")
_LAYOUT = _native.layout()
_BYTES: int = (
    _LAYOUT["constants"]["STACK_GENERATIONS"] * _LAYOUT["structs"]["stack_generation"]["size"]
)  # fmt: skip
_SHARE = 20
"""As the flight recorder: at most this part of what is free where the segment lies."""


@dataclass(frozen=True)
class StackSettings:
    """How stacks are sampled.

    Attributes:
        hz: Samples a second; 0: none.
        complaint: What the user should know, one line; empty: nothing.
    """

    hz: float = 0.0
    complaint: str = ""


def settings(environment: Mapping[str, str], directory: str) -> StackSettings:
    """What the user wishes, as far as there is room for it.

    Args:
        environment: As ``os.environ``.
        directory: Where the segment will lie, or a parent of it.
    """
    text = environment.get("ARGUS_STACKS", "").strip().lower()
    if text in _OFF:
        return StackSettings()
    hz, complaint = DEFAULT_HZ, ""
    if text not in _ON:
        try:
            hz = float(text)
        except ValueError:
            hz = -1.0
        if not 0.1 <= hz <= _MOST_HZ:
            complaint = (
                f"ARGUS_STACKS={text!r} is no number of samples a second from 0.1 to {_MOST_HZ:.0f}; "
                f"{DEFAULT_HZ:.0f} are taken (0 turns stack sampling off)"
            )
            hz = DEFAULT_HZ
    try:
        status = os.statvfs(directory)
    except OSError:
        return StackSettings(hz, complaint)  # creating the segment will say what is wrong
    if status.f_bavail * status.f_frsize // _SHARE < _BYTES:
        return StackSettings(
            complaint=f"stack sampling is off: {_BYTES >> 10} KiB would be more than a twentieth of what is "
            f"free in {directory}; make room there, or set ARGUS_STACKS=0"
        )
    return StackSettings(hz, complaint)


def start(segment: _native.Segment, wanted: StackSettings, environment: Mapping[str, str]) -> str:
    """Begin to sample; the calling thread is the one whose time is counted by category.

    Returns:
        What the user should know, one line; empty: nothing.
    """
    if not wanted.hz:
        return ""
    patterns = environment.get("ARGUS_STACK_PATTERNS") or None
    try:
        complaint = _native.stacks_start(segment, threading.get_ident(), wanted.hz, patterns)
    except (OSError, RuntimeError, ValueError) as error:
        return f"stack sampling is off: {error}"
    return f"stack patterns: {complaint}" if complaint else ""
