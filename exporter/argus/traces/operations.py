"""Operation traces: every operation of every worker of a Megatron-style job.

Columns: ``dp_rank``, ``stage`` (pipeline stage), ``rank``, ``step``, ``optype``,
``start_ts`` and ``duration`` in seconds, and ``seq_id``, ``mc``, ``gmc``, ``mb_id``,
which are not needed here.  Durations are measured on the device and stand as
recorded.  Phases keep the operation's name; a transfer between two stages is one
operation for both ends, so that sender and receiver can be compared.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from argus.traces.columns import Chunk
from argus.traces.errors import Notes
from argus.traces.table import (
    FARTHEST,
    LONGEST,
    MOST_ITERATIONS,
    MOST_RANKS,
    NONE,
    WALL,
    Collective,
    Rank,
    Rows,
    Table,
    empty_rows,
)

REQUIRED = ("dp_rank", "stage", "rank", "step", "optype", "start_ts", "duration")

KINDS = {
    "forward-compute": "compute",
    "backward-compute": "compute",
    "optimizer": "compute",
    "optimizer-clip-main-grad": "mixed",  # contains the all-reduce of the gradient norm
    "gc": "host",
    "forward-send": "communication",
    "forward-recv": "communication",
    "backward-send": "communication",
    "backward-recv": "communication",
    "grads-reduce-scatter": "communication",
    "params-all-gather": "communication",
    "layernorm-grads-all-reduce": "communication",
    "embedding-grads-all-reduce": "communication",
}
"""Operations and their kinds; any other is ``mixed``, which accuses nobody."""

_PEER_STAGE = {"forward-send": 1, "forward-recv": -1, "backward-send": -1, "backward-recv": 1}
"""Where the other end is; with interleaved model chunks the last stage's next is the first."""
_TRANSFER = {
    "forward-send": "forward-transfer",
    "forward-recv": "forward-transfer",
    "backward-send": "backward-transfer",
    "backward-recv": "backward-transfer",
}
_DATA_PARALLEL = frozenset(("grads-reduce-scatter", "params-all-gather"))
_TENSOR_PARALLEL = frozenset(("layernorm-grads-all-reduce",))
_ENDS = frozenset(("embedding-grads-all-reduce",))


_VALID = {
    "dp_rank": (0, MOST_RANKS - 1, True),
    "stage": (0, MOST_RANKS - 1, True),
    "rank": (0, MOST_RANKS - 1, True),
    "step": (0, MOST_ITERATIONS - 1, True),
    "start_ts": (-FARTHEST, FARTHEST, False),
    "duration": (0, LONGEST, False),
}
"""Lowest and highest valid value of a column, and whether it holds whole numbers."""


class _Place:
    """Where ranks sit: known completely only when the whole file has been read."""

    def __init__(self) -> None:
        self.rank: dict[tuple[int, int], int] = {}  # (dp, stage) -> rank

    @property
    def stages(self) -> int:
        return 1 + max(stage for _, stage in self.rank)

    def communicator(self, op: str, dp: int, stage: int) -> Collective:
        """The communicator of an operation as the rank at (dp, stage) sees it."""
        own = self.rank[(dp, stage)]
        if op in _DATA_PARALLEL:
            peers = [rank for (_, at), rank in self.rank.items() if at == stage]
            return Collective(op, "dp", f"dp-{min(peers)}", len(peers))
        if op in _TENSOR_PARALLEL:
            return Collective(op, "tp", f"tp-{own}")
        if op in _ENDS:
            peer = self.rank.get((dp, 0 if stage else self.stages - 1))
        else:
            peer = self.rank.get((dp, (stage + _PEER_STAGE[op]) % self.stages))
        name = _TRANSFER.get(op, op)
        if peer is None:  # the other end was not recorded
            return Collective(name, "pp", f"pp-{own}")
        low, high = sorted((own, peer))
        return Collective(name, "pp", f"pp-{low}-{high}", 2)


def read(chunks: Iterable[Chunk], table: Table, notes: Notes) -> None:
    """Add a file's operations to the table; rows that are not valid are left out and noted."""
    place = _Place()
    codes: dict[int, tuple[str, int, int]] = {}
    for chunk in chunks:
        _chunk(chunk, table, notes, place, codes)
    for code, key in codes.items():
        table.collectives[code] = place.communicator(*key)


def _chunk(
    chunk: Chunk, table: Table, notes: Notes, place: _Place, codes: dict[int, tuple[str, int, int]]
) -> None:
    numbers = {name: chunk.numbers(name, notes) for name in REQUIRED if name != "optype"}
    ops, texts = chunk.texts("optype")
    valid = np.array([bool(text.strip()) for text in texts])[ops]
    for name, column in numbers.items():
        low, high, whole = _VALID[name]
        passed = (column >= low) & (column <= high)
        if whole:
            passed &= column == np.floor(column)
        bad = valid & ~passed
        if bad.any():
            where = f"row {chunk.first_row + int(np.argmax(bad))}"
            notes.add(chunk.path, f"rows without a valid {name}", where, int(bad.sum()))
        valid &= passed
    if not valid.any():
        return
    rank, dp, stage = (numbers[name][valid].astype(np.int64) for name in ("rank", "dp_rank", "stage"))
    rows = empty_rows(len(rank))
    rows["rank"] = rank
    rows["iteration"] = numbers["step"][valid]
    rows["start"] = numbers["start_ts"][valid]
    rows["duration"] = numbers["duration"][valid]
    ops = ops[valid]
    index = np.zeros(len(texts), dtype=np.int64)
    for code in np.unique(ops).tolist():
        index[code] = table.phase(texts[code], KINDS.get(texts[code], "mixed"))
        if texts[code] not in KINDS:
            notes.add(chunk.path, "operation of unknown kind, taken as mixed", repr(texts[code])[:60])
    rows["phase"] = index[ops]
    places = np.stack((ops, dp, stage, rank), axis=1)
    distinct, which = np.unique(places, axis=0, return_inverse=True)
    which = which.reshape(-1)
    collective = np.full(len(distinct), NONE, dtype=np.int64)
    for position, (op, dp_rank, at, number) in enumerate(distinct.tolist()):
        place.rank.setdefault((dp_rank, at), number)
        if number not in table.ranks:
            table.ranks[number] = Rank(number, role=f"pp{at}", dp=dp_rank, pp=at, as_recorded=True)
        if KINDS.get(texts[op]) == "communication":
            key = (texts[op], dp_rank, at)
            code = table.collective(Collective(texts[op], "", ""), identity=(chunk.path, *key))
            codes[code] = key
            collective[position] = code
    rows["collective"] = collective[which]
    table.add(rows)
    table.add(_walls(rows))


def _walls(rows: Rows) -> Rows:
    """Extent of each (iteration, rank) in these rows: every step has a clock of its own."""
    keys, which = np.unique(rows[["iteration", "rank"]], return_inverse=True)
    which = which.reshape(-1)
    begin = np.full(len(keys), np.inf)
    end = np.full(len(keys), -np.inf)
    np.minimum.at(begin, which, rows["start"])
    np.maximum.at(end, which, rows["start"] + rows["duration"])
    walls = empty_rows(len(keys))
    walls["iteration"] = keys["iteration"]
    walls["rank"] = keys["rank"]
    walls["phase"] = WALL
    walls["start"] = begin
    walls["duration"] = end - begin
    return walls
