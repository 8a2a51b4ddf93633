"""How far each communicator has come, for hangs: enqueued and completed operations, once a second.

The numbers are those of torch's own flight recorder, which counts in C++ every
operation of every process group, whoever called it, and tells them without its
entries in microseconds.  Where it is switched off, they are those that were
caught.  Point-to-point operations are counted per pair as they were caught: the
flight recorder's numbers are of collectives only.

A thread does this, because a hung loop calls nothing any more.  It needs the
GIL, and can't tell anything of a rank that holds it: that rank's numbers stand
still, and so it is behind.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from torch import _C, distributed

from argus import _native
from argus._native import own_segments
from argus.torch.communicators import Communicator
from argus.torch.standstill import Standstill

if TYPE_CHECKING:
    from argus.torch.collectives import Collectives

_log = logging.getLogger("argus.torch")

INTERVAL_S = 1.0
_MOST_TRIES = 6
"""Times that the recorder's entries are read for a process group that is not known: they cost some
50 ms with the GIL kept, and of some groups, those of one rank among them, there is nothing to learn."""
GLOO = "_dump_fr_trace_json"
"""What tells the record of the operations on the host."""
Numbers = dict[tuple[str, str], tuple[Communicator, int, int]]
"""Communicators by name, and their operations enqueued and completed."""


class FlightRecorders:
    """What torch's flight recorders (of Gloo and the like, and of NCCL) say of each process group."""

    def __init__(self, collectives: Collectives) -> None:
        c10d = getattr(_C, "_distributed_c10d", None)
        names = (GLOO, "_dump_nccl_trace_json")
        self._dumps = [(name, getattr(c10d, name)) for name in names if hasattr(c10d, name)]
        self._communicators = collectives.communicators
        self._known: dict[tuple[str, str], Communicator] = {}
        self._furthest: dict[tuple[str, str], tuple[int, int]] = {}
        self._looks = 0
        self._tries: dict[tuple[str, str], int] = {}
        self._again: dict[tuple[str, str], int] = {}

    def numbers(self, paired: set[tuple[str, str]]) -> Numbers:
        """Sums over the process groups of each communicator; those that were destroyed count on.

        Args:
            paired: Communicators in which ranks also send to each other.  Gloo counts that too,
                on two ranks only, so that its numbers can't be compared; they are left out.
        """
        self._looks += 1
        for source, dump in self._dumps:
            status = json.loads(dump(False, False))["pg_status"]
            if self._worth_learning((source, number) for number in status):
                self._learn(source, json.loads(dump(True, False)).get("entries", ()))
            for number, state in status.items():
                # Gloo's threads may tell of an older completion after a newer one.
                at = (source, number)
                before = self._furthest.get(at, (0, 0))
                self._furthest[at] = (
                    max(before[0], int(state["last_enqueued_collective"])),
                    max(before[1], int(state["last_completed_collective"])),
                )
        sums: Numbers = {}
        for at, communicator in self._known.items():
            name = (communicator.group, communicator.group_id)
            if at[0] == GLOO and name in paired:
                continue
            _, enqueued, completed = sums.get(name, (communicator, 0, 0))
            more = self._furthest.get(at, (0, 0))
            sums[name] = (communicator, enqueued + more[0], completed + more[1])
        return sums

    def _worth_learning(self, seen: Iterable[tuple[str, str]]) -> bool:
        """Whether entries may name any of these, as often as it is worth it: after 1, 2, 4, … looks more."""
        due = [
            at
            for at in seen
            if at not in self._known
            and self._tries.get(at, 0) < _MOST_TRIES
            and self._again.get(at, 0) <= self._looks
        ]
        for at in due:
            tries = self._tries.get(at, 0)
            self._tries[at], self._again[at] = tries + 1, self._looks + (1 << tries)
        return bool(due)

    def _learn(self, source: str, entries: Iterable[dict[str, Any]]) -> None:
        """Entries tell which process group a number is."""
        names = {name: group for group, name in _process_groups().items()}
        for entry in entries:
            group = names.get(str(entry["process_group"][0]))
            found = None if group is None else self._communicators.group(group)
            if found is not None:
                self._known[source, str(entry["pg_id"])] = found.communicator


class Watch(threading.Thread):
    """Writes the numbers into the segment, and notes when they stand still."""

    def __init__(self, collectives: Collectives) -> None:
        super().__init__(name="argus-sequences", daemon=True)
        self._collectives = collectives
        self._recorders = FlightRecorders(collectives)
        self._standstill = Standstill()
        self._over = threading.Event()
        self._pid = os.getpid()

    def run(self) -> None:
        try:
            while not self._over.wait(INTERVAL_S) and not self._collectives.off:
                self.look()
        except Exception as error:
            _native.source("sequences", False)
            _log.warning(
                "argus: sequence numbers of collectives are off: %s: %s", type(error).__name__, error
            )

    def look(self) -> None:
        """Once."""
        if not distributed.is_initialized():
            return
        self._collectives.settle()
        numbers = {
            (known.group, known.group_id): (known, known.enqueued, known.completed)
            for known in self._collectives.communicators.all()
        }
        paired = self._collectives.communicators.with_pairs()
        numbers.update(self._recorders.numbers(paired))
        segment = next(iter(own_segments()), None)
        if segment is None or segment.closed:
            return
        for known, enqueued, completed in numbers.values():
            if enqueued:
                index = segment.collective(known.op, known.group, known.group_id, known.members, known.nodes)
                if index >= 0:
                    segment.sequence(index, enqueued, min(completed, enqueued))
        self._standstill.look(segment, sum(enqueued for _, enqueued, _ in numbers.values()))

    def end(self) -> None:
        """Stop, and wait for it: a thread that runs into the interpreter's end can abort the process."""
        self._over.set()
        if os.getpid() == self._pid and threading.current_thread() is not self:
            self.join(2 * INTERVAL_S)
        atexit.unregister(self.end)


def watch(collectives: Collectives) -> Watch:
    """Begin to look, until the interpreter ends or the watch is ended."""
    thread = Watch(collectives)
    atexit.register(thread.end)
    thread.start()
    return thread


def _process_groups() -> dict[Any, str]:
    """Names by process group; torch's own table, which has no public reader."""
    names: Any = distributed.distributed_c10d._world.pg_names
    return {group: str(name) for group, name in list(names.items())}
