"""Where the ranks of a modelled job sit, and which communicators they form.

Megatron's order ``tp-cp-ep-dp-pp``: rank = ((pp * dp_size + dp) * cp_size + cp) * tp_size + tp.
Expert groups lie across the data- and context-parallel ranks of a stage.  A
*lane* is a rank's place inside its stage: rank = stage * lanes + lane.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from argus.tracer.parallel import Coordinates, Layout, nodes_spanned

Indices = npt.NDArray[np.int64]


class TopologyError(ValueError):
    """The sizes do not fit together; the message says which."""


@dataclass(frozen=True)
class Topology:
    """Parallel sizes, micro-batches per iteration, model chunks per stage (1: plain 1F1B), ranks per node."""

    dp: int = 4
    tp: int = 1
    pp: int = 4
    cp: int = 1
    ep: int = 1
    micro_batches: int = 8
    chunks: int = 1
    per_node: int = 8

    def __post_init__(self) -> None:
        for name in ("dp", "tp", "pp", "cp", "ep", "micro_batches", "chunks", "per_node"):
            if getattr(self, name) < 1:
                raise TopologyError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if (self.dp * self.cp) % self.ep:
            raise TopologyError(f"ep = {self.ep} does not divide dp * cp = {self.dp * self.cp}")
        if self.chunks > 1 and self.pp == 1:
            raise TopologyError("an interleaved schedule (chunks > 1) needs pp of at least 2")
        if self.chunks > 1 and self.micro_batches % self.pp:
            raise TopologyError(
                f"an interleaved schedule needs a number of micro-batches that pp = {self.pp} divides, "
                f"not {self.micro_batches}"
            )

    @property
    def lanes(self) -> int:
        """Ranks of a stage."""
        return self.dp * self.cp * self.tp

    @property
    def ranks(self) -> int:
        return self.lanes * self.pp

    @property
    def nodes(self) -> int:
        return -(-self.ranks // self.per_node)

    def node(self, rank: int) -> int:
        return rank // self.per_node

    def ranks_of_node(self, node: int) -> range:
        """Ranks of a node (0 <= node < nodes)."""
        return range(node * self.per_node, min(self.ranks, (node + 1) * self.per_node))

    def stage(self, rank: int) -> int:
        return rank // self.lanes

    def lane(self, rank: int) -> int:
        return rank % self.lanes

    @cached_property
    def _layout(self) -> Layout:
        return Layout(self.ranks, tp=self.tp, pp=self.pp, cp=self.cp, ep=self.ep)

    def coordinates(self, rank: int) -> Coordinates:
        return self._layout.coordinates(rank)

    def pipeline(self, rank: int) -> list[int]:
        """Ranks of all stages at this rank's lane."""
        return [stage * self.lanes + self.lane(rank) for stage in range(self.pp)]

    @cached_property
    def lane_groups(self) -> dict[str, Indices]:
        """For tp, cp, dp and ep the members of every communicator of one stage: lanes, (groups, members)."""
        lanes = np.arange(self.lanes, dtype=np.int64)
        grid = lanes.reshape(self.dp, self.cp, self.tp)
        experts = lanes.reshape(-1, self.ep, self.tp)
        return {
            "tp": grid.reshape(-1, self.tp),
            "cp": np.moveaxis(grid, 1, 2).reshape(-1, self.cp),
            "dp": np.moveaxis(grid, 0, 2).reshape(-1, self.dp),
            "ep": np.moveaxis(experts, 1, 2).reshape(-1, self.ep),
        }

    def members(self, group: str, rank: int) -> list[int]:
        """Ranks of the rank's communicator, ascending; the group is one of tp, cp, dp, ep."""
        members = self._layout.members(group, rank)
        if members is None:
            raise ValueError(f"there is no group {group!r}")
        return members

    def spans(self, members: list[int]) -> int:
        """How many nodes these ranks lie on."""
        return nodes_spanned(members, self.per_node)

    def identity(self, rank: int) -> dict[str, Any]:
        """Keyword arguments of the rank's segment, without run."""
        place = self.coordinates(rank)
        return {
            "rank": rank,
            "role": f"pp{place.pp}",
            "node": f"node{self.node(rank)}",
            "local_rank": rank % self.per_node,
            "world_size": self.ranks,
            "dp": place.dp,
            "tp": place.tp,
            "pp": place.pp,
            "cp": place.cp,
            "ep": place.ep,
        }
