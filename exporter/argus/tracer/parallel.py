"""Parallel coordinates and groups of a rank, from the sizes.

The formula is Megatron-Core's (``megatron/core/parallel_state.py``,
``generate_masked_orthogonal_rank_groups`` and ``RankGenerator``): in the order
``tp-cp-ep-dp-pp`` the first dimension varies fastest,

    rank = sum of coordinate_i * (product of the sizes before i),

once for the dense layers, where ep counts as 1, and once for the expert
layers, where cp counts as 1, tp is the expert tensor size and dp is what
remains (``edp``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

ORDER = "tp-cp-ep-dp-pp"
GROUPS = ("tp", "cp", "dp", "pp", "ep", "edp", "world")


@dataclass(frozen=True)
class Coordinates:
    """Place of a rank; None: unknown."""

    dp: int | None = None
    tp: int | None = None
    pp: int | None = None
    cp: int | None = None
    ep: int | None = None


class Layout:
    """How a world of ranks is divided.

    Args:
        world: Number of ranks.
        tp, pp, cp, ep: Sizes; the data-parallel size is what remains.
        etp: Tensor-parallel size of the expert layers, None: as ``tp``.
        order: Dimensions, the one that varies fastest first; ones left out have size 1.

    Raises:
        ValueError: The sizes do not divide the world, or the order is not one; the
            message says which.
    """

    def __init__(
        self,
        world: int,
        *,
        tp: int = 1,
        pp: int = 1,
        cp: int = 1,
        ep: int = 1,
        etp: int | None = None,
        order: str = ORDER,
    ) -> None:
        etp = tp if etp is None else etp
        self.world = world
        names = order.lower().split("-")
        names += [name for name in ("tp", "cp", "ep", "dp", "pp") if name not in names]
        if sorted(names) != ["cp", "dp", "ep", "pp", "tp"]:
            raise ValueError(
                f"order {order!r} must name some of tp, cp, ep, dp, pp, each once, joined by '-'"
            )
        self._names = names
        dense = {"tp": tp, "cp": cp, "pp": pp, "ep": 1}
        expert = {"tp": etp, "cp": 1, "pp": pp, "ep": ep}
        self._dense = dense | {"dp": _remaining(world, dense, "tp * cp * pp")}
        self._expert = expert | {"dp": _remaining(world, expert, "expert tp * ep * pp")}

    def coordinates(self, rank: int) -> Coordinates:
        """Coordinates of a rank (0 <= rank < world)."""
        dense, expert = self._split(rank, self._dense), self._split(rank, self._expert)
        return Coordinates(dp=dense["dp"], tp=dense["tp"], pp=dense["pp"], cp=dense["cp"], ep=expert["ep"])

    def members(self, group: str, rank: int) -> list[int] | None:
        """Ranks of the group to which ``rank`` belongs, ascending; None where it is not one of GROUPS."""
        if group == "world":
            return list(range(self.world))
        if group not in GROUPS:
            return None
        sizes = self._expert if group in ("ep", "edp") else self._dense
        dimension = "dp" if group == "edp" else group
        stride = self._stride(sizes, dimension)
        lowest = rank - self._split(rank, sizes)[dimension] * stride
        return [lowest + i * stride for i in range(sizes[dimension])]

    def _stride(self, sizes: dict[str, int], dimension: str) -> int:
        return prod(sizes[name] for name in self._names[: self._names.index(dimension)])

    def _split(self, rank: int, sizes: dict[str, int]) -> dict[str, int]:
        return {name: rank // self._stride(sizes, name) % sizes[name] for name in self._names}


def _remaining(world: int, sizes: dict[str, int], what: str) -> int:
    """The data-parallel size: what the other sizes leave."""
    if any(size < 1 for size in sizes.values()):
        raise ValueError("parallel sizes are at least 1")
    product = prod(sizes.values())
    if world < 1 or world % product:
        raise ValueError(f"{what} = {product} does not divide the {world} ranks of the run")
    return world // product


def nodes_spanned(members: Iterable[int], ranks_per_node: int | None) -> int:
    """How many nodes the ranks lie on, for launchers that number ranks node by node; -1: unknown."""
    if not ranks_per_node:
        return -1
    return len({rank // ranks_per_node for rank in members})
