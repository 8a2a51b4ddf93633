"""Process groups as ARGUS names them, and how many operations of each were caught.

A process group is named by comparing its ranks with the coordinates of the job,
so that the same communicator has the same name on every rank and after every
restart.  Several process groups of the same ranks are one communicator.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import Any

from torch import distributed

from argus.tracer import session


@dataclass
class Communicator:
    """Ranks that communicate with each other.

    Attributes:
        group: ``dp``, ``tp``, …, ``world``, or ``sub`` where it is no dimension of the job.
        group_id: The group and its lowest rank; of a pair both ranks.
        members: How many ranks belong to it.
        nodes: How many nodes it spans, -1: unknown.
        op: The last operation caught, by which the segment knows the communicator.
        enqueued: Operations caught when they were enqueued.
        completed: The highest of them that is known to be done.
    """

    group: str
    group_id: str
    members: int
    nodes: int
    op: str = "all_reduce"
    enqueued: int = 0
    completed: int = 0


@dataclass
class Group:
    """A process group's communicator, and its pairs by the other's global rank."""

    ranks: list[int]
    communicator: Communicator
    pairs: dict[int, Communicator] = field(default_factory=dict)


class Communicators:
    """All communicators of this process, by name; keeps no process group alive."""

    def __init__(self) -> None:
        self._groups: weakref.WeakKeyDictionary[Any, Group] = weakref.WeakKeyDictionary()
        self._known: dict[tuple[str, str], Communicator] = {}
        self._paired: set[tuple[str, str]] = set()
        self._version = -1

    def group(self, process_group: Any) -> Group | None:
        """None while tracing is off, for a group of one rank, and for one that is gone."""
        running = session.current()
        if running is None:
            return None
        if self._version != running.topology.version:  # names may be others now
            self._groups.clear()
            self._version = running.topology.version
        found = self._groups.get(process_group)
        if found is None:
            ranks = ranks_of(process_group)
            if len(ranks) < 2 or running.identity.rank not in ranks:
                return None
            found = Group(ranks, self._communicator(*running.topology.name(ranks)))
            self._groups[process_group] = found
        return found

    def pair(self, group: Group, peer: int) -> Communicator | None:
        """This rank and another one of the group.

        Args:
            group: In which they communicate.
            peer: The other's rank in the group.
        """
        other = group.ranks[peer]
        if other not in group.pairs:
            running = session.current()
            if running is None:
                return None
            self._paired.add((group.communicator.group, group.communicator.group_id))
            group_id, members, nodes = running.topology.communicator(group.communicator.group, other)
            group.pairs[other] = self._communicator(group.communicator.group, group_id, members, nodes)
        return group.pairs[other]

    def with_pairs(self) -> set[tuple[str, str]]:
        """Names of the communicators of which pairs are known."""
        return set(self._paired)

    def all(self) -> list[Communicator]:
        """Every communicator that was named."""
        return list(self._known.values())

    def _communicator(self, group: str, group_id: str, members: int, nodes: int) -> Communicator:
        return self._known.setdefault((group, group_id), Communicator(group, group_id, members, nodes))


def ranks_of(process_group: Any) -> list[int]:
    """Global ranks by rank in the group; empty where torch does not know the group (any more)."""
    try:
        return distributed.get_process_group_ranks(process_group)
    except Exception:  # torch's own errors differ between releases
        return []
