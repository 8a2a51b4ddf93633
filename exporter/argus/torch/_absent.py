"""Stand-ins for `argus.torch` where the tracer can't be loaded: training goes on, untraced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from argus import _absent


class Handle:
    """Of what was not attached."""

    active = False
    recorder = None

    def __init__(self, recorder: None = None, reason: str = "") -> None:
        self.dataloader: Any = None
        self.reason = _absent.reason

    def on_detach(self, undo: Callable[[], None]) -> None:
        return None

    def absorb(self, other: Handle) -> None:
        return None

    def undo(self) -> None:
        return None

    def detach(self) -> None:
        return None


def attach(model: Any = None, optimizer: Any = None, dataloader: Any = None, **_: Any) -> Handle:
    handle = Handle()
    handle.dataloader = dataloader
    return handle
