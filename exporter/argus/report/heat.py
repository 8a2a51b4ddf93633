"""The heatmap: which ranks lose time, seen over the whole job."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from argus.report.model import Document, Floats

MOST_ROWS = 48
"""Up to so many ranks have a row each."""
MOST_COLUMNS = 240
"""More columns than this would be narrower than a line; they are joined."""
_PER_ROW = 64
_MOST_STAGES = 1024


@dataclass(frozen=True)
class Heat:
    """A grid of values.

    Attributes:
        values: (rows, columns); NaN where there is nothing.
        rows, columns: Labels; empty text where a label would not fit.
        row_title, column_title: What they are.
        marked: (row, column) of the accused.
        joined: How many columns of the job are one column here.
    """

    values: Floats
    rows: list[str]
    columns: list[str]
    row_title: str
    column_title: str
    marked: list[tuple[int, int]]
    joined: int = 1


def excess(document: Document) -> Floats:
    """(ranks, phases): seconds beyond the peers' typical ones, in percent of the rank's iteration."""
    phases = document.phases
    beyond = np.clip(phases.seconds - phases.reference, 0, None)
    iteration = np.where(document.ranks.iteration > 0, document.ranks.iteration, np.nan)
    return 100 * beyond / iteration[:, None]


def by_phase(document: Document) -> Heat:
    """Rank by phase: excess in percent of the iteration."""
    names, numbers = document.phases.names, document.ranks.numbers
    accused = {(f.rank, f.labels.get("phase")) for f in document.accused}
    marked = [
        (row, column)
        for row, number in enumerate(numbers)
        for column, name in enumerate(names)
        if (number, name) in accused
    ]
    return Heat(excess(document), numbers, names, "rank", "phase", marked)


def by_place(document: Document, per_rank: Floats, joining: str = "max") -> Heat:
    """Pipeline stage by data-parallel index where these are known, else ranks in rows of 64.

    Args:
        document: Whose ranks.
        per_rank: One value for each rank; ranks at the same place (tensor and context parallel ones)
            and columns that must be joined give their largest (``max``) or median value.
        joining: ``max`` or ``median``.
    """
    ranks = document.ranks
    pp, dp = ranks.places["pp"], ranks.places["dp"]
    known = len(ranks) > 0 and bool((dp >= 0).all()) and int(dp.max()) > 0 and int(pp.max()) < _MOST_STAGES
    if known:
        rows, columns = np.clip(pp, 0, None), dp
        titles = ("pipeline stage", "data-parallel index")
    else:
        order = np.arange(len(ranks))
        rows, columns = order // _PER_ROW, order % _PER_ROW
        titles = (f"ranks in rows of {_PER_ROW}", "rank within its row")
    height, width = int(rows.max()) + 1, int(columns.max()) + 1
    joined = -(-width // MOST_COLUMNS)
    cells: dict[tuple[int, int], list[float]] = {}
    for row, column, value in zip(
        rows.tolist(), (columns // joined).tolist(), per_rank.tolist(), strict=True
    ):
        if value == value:
            cells.setdefault((row, column), []).append(value)
    grid = np.full((height, -(-width // joined)), np.nan)
    for (row, column), values in cells.items():
        grid[row, column] = max(values) if joining == "max" else float(np.median(values))
    culprits = document.culprits
    marked = sorted(
        {
            (int(rows[i]), int(columns[i]) // joined)
            for i, number in enumerate(ranks.numbers)
            if number in culprits
        }
    )
    labels = [str(column * joined) for column in range(grid.shape[1])]
    return Heat(grid, [str(row) for row in range(height)], labels, *titles, marked, joined)


def heat(document: Document) -> Heat:
    """The grid that suits the size of the job."""
    if len(document.ranks) <= MOST_ROWS:
        return by_phase(document)
    table = excess(document)
    worst = np.full(len(document.ranks), np.nan)
    some = ~np.isnan(table).all(axis=1)
    worst[some] = np.nanmax(table[some], axis=1)
    return by_place(document, worst)
