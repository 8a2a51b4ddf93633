"""The canonical table: what every trace format is read into, and what replay and diagnose read.

A row is one occurrence of a phase on one rank in one iteration.  Names are small
integers into dictionaries.  Rows may come in any order; they are kept in a
temporary file with an index by iteration, so that memory holds one chunk while
reading and one iteration afterwards, however long the trace is.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from argus.traces.errors import TraceError

ROW = np.dtype(
    [
        ("iteration", "<i8"),
        ("rank", "<i4"),
        ("phase", "<i4"),  # index into Table.phases, or WALL or BUSY
        ("collective", "<i4"),  # index into Table.collectives; NONE: not a collective
        ("start", "<f8"),  # seconds, on one clock within a rank and iteration
        ("duration", "<f8"),  # seconds
        ("bytes", "<f8"),  # payload; NaN: unknown
        ("work", "<f8"),  # units of work; NaN: unknown
    ]
)
"""One occurrence."""

Rows = npt.NDArray[np.void]

KINDS = ("compute", "host", "communication", "mixed")

NONE = -1
WALL = -1
"""Phase of a row that states its iteration's extent on that rank, for formats that know it."""
BUSY = -2
"""Phase of a row that states its iteration's busy seconds on that rank, for formats that know them."""

LONGEST = 1e7
"""Seconds above which a duration is a mistake: four months."""
FARTHEST = 1e11
"""Seconds from zero beyond which a start is a mistake: three thousand years."""
MOST_RANKS = 2**31
MOST_ITERATIONS = 2**53

_IN_MEMORY = 32 << 20
"""Bytes of rows that are kept in memory before the temporary file goes to disk."""


@dataclass(frozen=True)
class Phase:
    """Name of a phase and its kind, one of ``KINDS``."""

    name: str
    kind: str


@dataclass(frozen=True)
class Collective:
    """One communicator's operation; ``members`` is -1 where unknown."""

    op: str
    group: str
    group_id: str
    members: int = -1


@dataclass
class Rank:
    """Identity of one rank; -1 and empty text where unknown.

    ``as_recorded``: its durations are measured where the work ran and stand as
    they are; otherwise they are a host's, and nested or concurrent rows are
    subtracted as in live accounting.  ``placed``: its rows lie where they ran;
    otherwise only their durations count (a phase's pieces are one row).
    """

    rank: int
    run_id: str = ""
    role: str = ""
    node: str = ""
    dp: int = -1
    tp: int = -1
    pp: int = -1
    cp: int = -1
    ep: int = -1
    world_size: int = -1
    as_recorded: bool = False
    placed: bool = True


class Table:
    """Rows of all ranks, by iteration, with their dictionaries.

    Not safe for use from several threads at once.  Close it, or use it as a
    context manager: its temporary file goes with it.
    """

    def __init__(self) -> None:
        self.phases: list[Phase] = []
        self.collectives: list[Collective] = []
        self.ranks: dict[int, Rank] = {}
        self.rows = 0
        self._phase_index: dict[Phase, int] = {}
        self._collective_index: dict[object, int] = {}
        self._runs: dict[int, list[tuple[int, int]]] = {}
        self._file = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY, prefix="argus-trace-")  # noqa: SIM115

    def __enter__(self) -> Table:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Drop the rows."""
        self._file.close()
        self._runs.clear()

    def phase(self, name: str, kind: str) -> int:
        """Index of a phase, added when new."""
        key = Phase(name, kind)
        index = self._phase_index.get(key)
        if index is None:
            index = self._phase_index[key] = len(self.phases)
            self.phases.append(key)
        return index

    def collective(self, key: Collective, identity: object = None) -> int:
        """Index of a collective, added when new.

        ``identity`` stands for it while its final names are not known yet;
        replace the entry of ``collectives`` once they are.
        """
        by: object = key if identity is None else identity
        index = self._collective_index.get(by)
        if index is None:
            index = self._collective_index[by] = len(self.collectives)
            self.collectives.append(key)
        return index

    def add(self, rows: Rows) -> None:
        """Append rows (dtype ``ROW``) in any order."""
        if not len(rows):
            return
        rows = rows[np.argsort(rows["iteration"], kind="stable")]
        iterations, first = np.unique(rows["iteration"], return_index=True)
        bounds = [*first.tolist(), len(rows)]
        self._file.seek(0, 2)
        try:
            self._file.write(rows.tobytes())
        except OSError as error:
            raise TraceError(
                f"no room for the temporary copy of the trace in {tempfile.gettempdir()} ({error}); "
                "set TMPDIR to a folder with more room"
            ) from error
        for position, iteration in enumerate(iterations.tolist()):
            begin, end = bounds[position], bounds[position + 1]
            self._runs.setdefault(iteration, []).append((self.rows + begin, end - begin))
        self.rows += len(rows)

    @property
    def iterations(self) -> list[int]:
        """Numbers of the recorded iterations, ascending."""
        return sorted(self._runs)

    def iterations_by_rank(self) -> dict[int, int]:
        """How many iterations each rank has."""
        counts = dict.fromkeys(self.ranks, 0)
        for _, rows in self:
            for rank in np.unique(rows["rank"]).tolist():
                counts[rank] += 1
        return counts

    def read(self, iteration: int) -> Rows:
        """Rows of one iteration, ordered by rank, then start, then the longest first."""
        parts = []
        for first, count in self._runs[iteration]:
            self._file.seek(first * ROW.itemsize)
            parts.append(np.frombuffer(self._file.read(count * ROW.itemsize), dtype=ROW))
        rows: Rows = np.concatenate(parts)
        return rows[np.lexsort((-rows["duration"], rows["start"], rows["rank"]))]

    def __iter__(self) -> Iterator[tuple[int, Rows]]:
        """Iterations in order, each with its rows as ``read`` gives them."""
        for iteration in self.iterations:
            yield iteration, self.read(iteration)


def empty_rows(count: int) -> Rows:
    """``count`` rows that belong to no collective and know neither bytes nor work."""
    rows: Rows = np.zeros(count, dtype=ROW)
    rows["collective"] = NONE
    rows["bytes"] = np.nan
    rows["work"] = np.nan
    return rows
