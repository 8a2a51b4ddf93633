"""The modelled ranks as an exporter finds them, dead ones included."""

from __future__ import annotations

from argus.drill.player import Player
from argus.exporter.sources import MemorySource, Rank, Scan
from argus.segment.reader import read


class PlayerSource(MemorySource):
    """Ranks of a drill: all of them, or those of one node.

    A dead rank is shown by what it wrote last, as a real one is by its file, until the run begins again.
    After the end of the run the others are counted as ended.

    Attributes:
        scraped: Whether anybody has looked.
        told: Whether somebody has looked since the end.
    """

    def __init__(self, player: Player, node: int | None = None) -> None:
        topology = player.topology
        self._ranks = range(topology.ranks) if node is None else topology.ranks_of_node(node)
        self._player = player
        self.scraped = self.told = False
        super().__init__(lambda: [player.fleet.ranks[r].segment for r in self._ranks if r not in player.dead])

    def scan(self, now_ns: int) -> Scan:
        self.scraped = True
        ended = self._player.ended
        scan = Scan() if ended else super().scan(now_ns)
        for rank in self._ranks:
            if rank in self._player.dead:
                scan.ranks.append(Rank(read(self._player.dead[rank], now_ns), False))
                scan.segments["down"] += 1
        if ended:
            self.told = True
            scan.ended[self._player.run_id] = len(self._ranks) - len(scan.ranks)
        return scan
