"""What a segment says about one rank, in Python's own terms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from argus.segment.device import Device
    from argus.segment.window import Window

KINDS = ("compute", "host", "communication", "mixed")
"""Names of ``enum argus_kind``, by number."""


class RunState(IntEnum):
    """How the rank's run stands, ``enum argus_run_state``."""

    RUNNING = 1
    ENDED = 2
    FAILED = 3


class RankKey(NamedTuple):
    """What a series is keyed by."""

    run_id: str
    role: str
    rank: int


@dataclass(frozen=True)
class Identity:
    """Who the rank is; -1 and empty text where unknown."""

    run_id: str
    role: str
    rank: int
    node: str
    local_rank: int
    world_size: int
    attempt: int
    dp: int
    tp: int
    pp: int
    cp: int
    ep: int
    gpu_uuid: str
    pci_bus_id: str

    @property
    def key(self) -> RankKey:
        return RankKey(self.run_id, self.role, self.rank)


@dataclass(frozen=True)
class Durations:
    """Cumulative histogram of durations.

    Attributes:
        counts: Observations per bucket, shape (258,).
        sum_ns: Nanoseconds.
    """

    counts: npt.NDArray[np.uint64]
    sum_ns: int

    @property
    def count(self) -> int:
        return int(self.counts.sum())


@dataclass(frozen=True)
class Phase:
    """A named interval; ``index`` is its column in the iterations' ``phase``.

    ``data_dependent``: the user says that its time depends on the rank's data.
    """

    index: int
    name: str
    kind: str
    seconds: Durations
    data_dependent: bool = False


@dataclass(frozen=True)
class Collective:
    """A collective of one communicator; members and nodes are -1 where unknown."""

    index: int
    op: str
    group: str
    group_id: str
    members: int
    nodes: int
    enqueued: int
    completed: int
    bytes: int
    seconds: Durations


@dataclass(frozen=True)
class Work:
    """Units of work done; ``phase`` is empty where they are the iteration's own.

    ``index`` is their column in the work iterations' ``amount``.
    """

    unit: str
    phase: str
    total: float
    index: int


@dataclass(frozen=True)
class Source:
    """What a source of the tracer says about itself; ``last_event_ns`` is 0 before the first."""

    name: str
    enabled: bool
    events: int
    dropped: int
    cost_ns: int
    last_event_ns: int


@dataclass(frozen=True)
class Open:
    """A phase or a declared pause (kind ``pause``) that is open, since ``begin_ns``."""

    name: str
    kind: str
    begin_ns: int


@dataclass(frozen=True)
class RankState:
    """One rank as its segment showed it at ``now_ns``.

    Attributes:
        now_ns: The moment of reading, on the clock of the segment's points in time.
        incarnation_ns: Wall-clock time when the rank created the segment.
        created_ns: The same moment on the segment's clock.
        writer_version: Version of the package that writes.
        completed: Iterations completed since the incarnation began.
        last_iteration: The user's number of the last one, None before the first.
        last_iteration_end_ns: When it ended, 0 before the first.
        iteration_sum_ns, busy_sum_ns: Cumulative over the completed iterations.
        open: What is open now, a declared pause before a phase.
        slots: Structured array of the ring's valid iterations, oldest first.
        work_slots: Structured array of the work done in iterations (``ordinal``, ``amount``), unordered.
        skipped: Records that were left out because they made no sense.
        cpu_samples: Samples of the training thread's stack, by category; empty where none are taken.
        stack_interval_ns: Nanoseconds that one of them stands for; 0 where none are taken.
        device: What its kernels say; None where none were traced. Phases and slots then hold device
            seconds (``argus.segment.device``).
    """

    now_ns: int
    incarnation_ns: int
    created_ns: int
    writer_version: str
    identity: Identity
    run_state: RunState
    completed: int
    last_iteration: int | None
    last_iteration_end_ns: int
    iteration_sum_ns: int
    busy_sum_ns: int
    open: Open | None
    iteration_seconds: Durations | None
    phases: tuple[Phase, ...]
    collectives: tuple[Collective, ...]
    work: tuple[Work, ...]
    sources: tuple[Source, ...]
    slots: npt.NDArray[Any]
    work_slots: npt.NDArray[Any]
    skipped: int
    cpu_samples: Mapping[str, int] = field(default_factory=dict)
    stack_interval_ns: int = 0
    device: Device | None = None

    @property
    def last_sign_ns(self) -> int:
        """The last point in time at which the rank is known to have lived."""
        events = (source.last_event_ns for source in self.sources)
        return max(self.created_ns, self.last_iteration_end_ns, *events)

    def window(self) -> Window | None:
        """The sliding window of iterations at ``now_ns``; None below four iterations."""
        from argus.segment.window import window

        return window(self)
