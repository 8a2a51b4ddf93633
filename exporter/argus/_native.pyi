import os
from collections.abc import Callable
from types import TracebackType
from typing import Any, SupportsFloat, TypedDict, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])

__version__: str

class StructLayout(TypedDict):
    size: int
    fields: dict[str, tuple[int, str, int]]

class Layout(TypedDict):
    constants: dict[str, Any]
    structs: dict[str, StructLayout]

def layout() -> Layout: ...
def monotonic_ns() -> int: ...
def infer_kind(name: str, /) -> str: ...
def own_segments() -> list[Segment]: ...
def configure(
    *,
    report: Callable[[str], object] = ...,
    resolve: Callable[[str, int | None], tuple[str, int, int]] = ...,
    iterated: Callable[[int], object] = ...,
) -> None: ...
def start(segment: Segment, *, cost_per_event: float = 0.0) -> None: ...
def stop(state: str | None = None) -> None: ...
def refresh() -> None: ...
def status() -> dict[str, Any]: ...
def set_clock(now_ns: int, /) -> None: ...
def phase(name: str, kind: str | None = None) -> Phase: ...
def collective(
    op: str,
    group: str = "world",
    group_id: str | None = None,
    bytes: int = 0,
    members: int | None = None,
    nodes: int | None = None,
    peer: int | None = None,
) -> Block: ...
def iteration(number: int | None = None) -> Block: ...
def mark(number: int | None = None, begin: bool = True) -> None: ...
def pause(kind: str, /) -> Block: ...
def work(phase: str | None = None, **units: SupportsFloat) -> None: ...

class Block:
    """What phase(), collective(), iteration() and pause() return, as far as callers need it."""

    def __enter__(self) -> Block: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...
    def __call__(self, function: _Function, /) -> _Function: ...

class Phase(Block):
    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...

class Segment:
    def __new__(
        cls,
        path: str | os.PathLike[str] | None,
        *,
        run_id: str,
        rank: int,
        role: str = "pp0",
        node: str = "",
        local_rank: int | None = -1,
        world_size: int | None = -1,
        attempt: int | None = 0,
        dp: int | None = -1,
        tp: int | None = -1,
        pp: int | None = -1,
        cp: int | None = -1,
        ep: int | None = -1,
        gpu_uuid: str = "",
        pci_bus_id: str = "",
        created: int | None = None,
    ) -> Segment: ...
    @property
    def path(self) -> str | None: ...
    @property
    def inode(self) -> tuple[int, int] | None: ...
    @property
    def closed(self) -> bool: ...
    @property
    def lost(self) -> bool: ...
    @property
    def dropped(self) -> int: ...
    def phase(self, name: str, kind: str) -> int: ...
    def collective(
        self, op: str, group: str, group_id: str, members: int | None = -1, nodes: int | None = -1
    ) -> int: ...
    def observe_phase(self, index: int, duration_ns: int, /) -> None: ...
    def observe_collective(self, index: int, duration_ns: int, bytes: int = 0, /) -> None: ...
    def end_iteration(
        self, iteration: int, end_ns: int, wall_ns: int, busy_ns: int | None = None
    ) -> None: ...
    def open_phase(self, index: int, begin_ns: int = 0, /) -> None: ...
    def pause(self, kind: str | None, begin_ns: int = 0, /) -> None: ...
    def sequence(self, index: int, enqueued: int, completed: int, /) -> None: ...
    def work(self, unit: str, phase: str, amount: float) -> None: ...
    def identify(
        self,
        *,
        run_id: str = ...,
        rank: int = ...,
        role: str = ...,
        node: str = ...,
        local_rank: int | None = ...,
        world_size: int | None = ...,
        attempt: int | None = ...,
        dp: int | None = ...,
        tp: int | None = ...,
        pp: int | None = ...,
        cp: int | None = ...,
        ep: int | None = ...,
        gpu_uuid: str = ...,
        pci_bus_id: str = ...,
    ) -> None: ...
    def snapshot(self) -> bytes: ...
    def close(self, state: str | None = None) -> None: ...
