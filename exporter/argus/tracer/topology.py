"""Coordinates and communicators of this rank, from whoever knows them."""

from __future__ import annotations

from collections.abc import Iterable

from argus.tracer import megatron
from argus.tracer.identity import Identity
from argus.tracer.parallel import GROUPS, Coordinates, Layout, nodes_spanned

Communicator = tuple[str, int, int]
"""group_id, members and nodes; -1: unknown."""

_BY_MEANING = ("pp", "tp", "cp", "dp", "ep", "edp", "world")
"""Groups of equal members are named by the first of these."""


class Topology:
    """Where this rank stands among the others.

    Args:
        identity: The rank.
        layout: The division of the world, as far as the sizes are known.
        coordinates: As the user says; they win over the layout and Megatron.

    Attributes:
        version: Changes when names may have changed.
    """

    def __init__(self, identity: Identity, layout: Layout | None, coordinates: Coordinates | None) -> None:
        self._identity = identity
        self._layout = layout
        self._given = coordinates
        self._megatron: megatron.Megatron | None = None
        self._learned: dict[str, list[int]] = {}
        self.version = 0

    def learn_pipeline(self, ranks: Iterable[int], stage: int) -> None:
        """This rank's pipeline and its place there, from whoever runs it; the sizes may not tell."""
        self._learned["pp"] = sorted(ranks)
        self.version += 1
        told = self._layout is not None and self._layout.members("pp", self._identity.rank)
        if self._given is None and told != self._learned["pp"]:
            self._given = Coordinates(pp=stage)

    def refresh(self) -> bool:
        """Look for Megatron; whether it is there now, and was not before."""
        if self._megatron is not None:
            return False
        self._megatron = megatron.read()
        self.version += self._megatron is not None
        return self._megatron is not None

    @property
    def coordinates(self) -> Coordinates:
        """As known now."""
        if self._given is not None:
            return self._given
        if self._megatron is not None:
            return self._megatron.coordinates
        return self._layout.coordinates(self._identity.rank) if self._layout else Coordinates()

    @property
    def role(self) -> str:
        """As the user says, else ``pp<k>``."""
        return self._identity.role or f"pp{self.coordinates.pp or 0}"

    def communicator(self, group: str, peer: int | None) -> Communicator:
        """The communicator of ``group`` to which this rank belongs, or its pair with ``peer``."""
        rank = self._identity.rank
        if peer is not None:
            pair = sorted((rank, int(peer)))
            return (f"{group}-{pair[0]}-{pair[1]}", 2, self._nodes(pair))
        members = self._members(group)
        if not members:
            return (f"{group}-unknown", -1, -1)
        return (f"{group}-{members[0]}", len(members), self._nodes(members))

    def name(self, ranks: Iterable[int]) -> tuple[str, str, int, int]:
        """Group, group_id, members and nodes of a communicator of these ranks.

        What is no dimension of the job is ``sub``, told apart by its lowest and
        highest rank and its size.
        """
        members = sorted(ranks)
        group = next((known for known in _BY_MEANING if self._members(known) == members), "sub")
        group_id = f"{group}-{members[0]}"
        if group == "sub":
            group_id += f"-{members[-1]}-{len(members)}"
        return group, group_id, len(members), self._nodes(members)

    def _members(self, group: str) -> list[int] | None:
        if group == "world":
            return list(range(self._identity.world_size or 0))
        if group in self._learned:
            return self._learned[group]
        if self._megatron is not None and group in self._megatron.groups:
            return self._megatron.groups[group]
        if self._layout is not None and group in GROUPS:
            return self._layout.members(group, self._identity.rank)
        return None

    def _nodes(self, members: list[int]) -> int:
        return nodes_spanned(members, self._identity.ranks_per_node)
