"""The modelled ranks as an exporter finds them, dead ones included."""

from __future__ import annotations

from argus.drill.player import Player
from argus.exporter.sources import MemorySource, Rank, Scan
from argus.segment.reader import read


class PlayerSource(MemorySource):
    """Ranks of a drill: all of them, or those of one node.

    A dead rank is shown by what it wrote last, as a real one is by its file, until the run begins again.
    """

    def __init__(self, player: Player, node: int | None = None) -> None:
        topology = player.topology
        self._ranks = range(topology.ranks) if node is None else topology.ranks_of_node(node)
        self._player = player
        super().__init__(lambda: [player.fleet.ranks[r].segment for r in self._ranks if r not in player.dead])

    def scan(self, now_ns: int) -> Scan:
        scan = super().scan(now_ns)
        for rank in self._ranks:
            if rank in self._player.dead:
                scan.ranks.append(Rank(read(self._player.dead[rank], now_ns), False))
                scan.segments["down"] += 1
        return scan
