"""Coordinates and communicators of this rank, from whoever knows them."""

from __future__ import annotations

from argus.tracer import megatron
from argus.tracer.identity import Identity
from argus.tracer.parallel import GROUPS, Coordinates, Layout, nodes_spanned

Communicator = tuple[str, int, int]
"""group_id, members and nodes; -1: unknown."""


class Topology:
    """Where this rank stands among the others.

    Args:
        identity: The rank.
        layout: The division of the world, as far as the sizes are known.
        coordinates: As the user says; they win over the layout and Megatron.
    """

    def __init__(self, identity: Identity, layout: Layout | None, coordinates: Coordinates | None) -> None:
        self._identity = identity
        self._layout = layout
        self._given = coordinates
        self._megatron: megatron.Megatron | None = None

    def refresh(self) -> bool:
        """Look for Megatron; whether it is there now, and was not before."""
        if self._megatron is not None:
            return False
        self._megatron = megatron.read()
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

    def _members(self, group: str) -> list[int] | None:
        if group == "world":
            return list(range(self._identity.world_size or 0))
        if self._megatron is not None and group in self._megatron.groups:
            return self._megatron.groups[group]
        if self._layout is not None and group in GROUPS:
            return self._layout.members(group, self._identity.rank)
        return None

    def _nodes(self, members: list[int]) -> int:
        return nodes_spanned(members, self._identity.ranks_per_node)
