"""The report's pictures, each with its text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import matplotlib.dates as dates
import numpy as np
from matplotlib import colormaps
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from argus.report import plots
from argus.report.heat import MOST_ROWS, Heat, by_place, heat
from argus.report.model import Comparison, Course, Document, Floats
from argus.report.plots import ACCUSED, MUTED, OTHER, PAPER, THIRD, WIDTH
from argus.report.words import seconds

_LEAST_PERCENT = 5.0
"""The color scale of the heatmap reaches at least so far, so that noise stays pale."""
_STRIP = 100
"""Up to so many peers have a dot each."""


@dataclass(frozen=True)
class Picture:
    """One picture with its heading and what it tells."""

    title: str
    text: str
    svg: str


def pictures(document: Document) -> list[Picture]:
    """All pictures of a report, in reading order."""
    made = [_iteration(document)]
    if len(document.ranks) and document.phases.names:
        made.append(_heatmap(document))
    made += [_comparison(c, f"compare{i}") for i, c in enumerate(document.comparisons)]
    waiting = _waiting(document)
    return [*made, waiting] if waiting else made


def _positions(document: Document, course: Course) -> Any:
    if document.axis.iterations is not None:
        return document.axis.iterations(course.times)
    return course.times / 86400  # Matplotlib's dates are days of Unix time


def _iteration(document: Document) -> Picture:
    axis = document.axis
    typical = float(np.median(document.iteration.values))
    text = f"An iteration typically takes {seconds(typical)}."
    with plots.style("iteration"):
        figure = Figure(figsize=(WIDTH, 2.8))
        ax = figure.add_subplot()
        if len(document.slowest.times):
            ax.plot(
                _positions(document, document.slowest), document.slowest.values,
                color=MUTED, linewidth=1, linestyle=":", label="slowest of the window",
            )  # fmt: skip
        ax.plot(
            _positions(document, document.iteration), document.iteration.values,
            color=OTHER, linewidth=1.8, label="typical iteration",
        )  # fmt: skip
        onset = document.onset
        if onset is not None:
            at = max(onset, float(document.iteration.times[0]))
            where = _positions(document, Course(np.array([at]), np.array([0.0])))[0]
            ax.axvline(where, color=ACCUSED, linewidth=1.5, linestyle="--")
            ax.annotate(
                "first accusation begins to hold", (where, 1.0), xycoords=("data", "axes fraction"),
                xytext=(4, -4), textcoords="offset points", va="top", color=ACCUSED,
            )  # fmt: skip
            text += f" The first accusation begins to hold at {axis.name(onset)}."
            before = document.iteration.values[document.iteration.times < onset]
            after = document.iteration.values[document.iteration.times >= onset]
            if len(before) >= 3 and len(after):
                text += (
                    f" Before that it took {seconds(float(np.median(before)))}, "
                    f"after it {seconds(float(np.median(after)))}."
                )
        top = max(float(np.nanmax(c.values)) for c in (document.iteration, document.slowest) if len(c.values))
        ax.set_ylim(0, 1.25 * top if top > 0 else 1)
        ax.set_ylabel("seconds")
        if axis.iterations is None:
            _clock(ax)
            ax.set_xlabel("time, UTC")
        else:
            ax.set_xlabel("iteration")
        ax.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2)  # below it, curves may run
        drawn = plots.svg(figure, "iteration", "Iteration time", text)
    return Picture("Iteration time", text, drawn)


def _clock(ax: Any) -> None:
    """Clock times along the horizontal axis."""
    module: Any = dates  # its classes have no types
    locator = module.AutoDateLocator()
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(module.ConciseDateFormatter(locator))


def _heatmap(document: Document) -> Picture:
    grid = heat(document)
    title = "Who loses time"
    text = (
        "Seconds beyond what the peers typically need, in percent of the iteration, by "
        f"{grid.row_title} and {grid.column_title}."
    )
    if grid.joined > 1:
        text += f" Each column is the worst of {grid.joined}."
    most = float(np.nanmax(grid.values)) if not np.isnan(grid.values).all() else 0.0
    text += f" The largest is {most:.1f} %."
    if grid.marked:
        text += " Accused ranks are marked." if len(grid.marked) > 1 else " The accused rank is marked."
    drawn = _draw_heat(
        grid, "heatmap", title, text, "YlOrRd", (0.0, max(most, _LEAST_PERCENT)), "% of the iteration"
    )
    return Picture(title, text, drawn)


def _draw_heat(
    grid: Heat, name: str, title: str, text: str, colors: str, span: tuple[float, float], unit: str
) -> str:
    height, width = grid.values.shape
    each = height <= MOST_ROWS and width <= 32
    with plots.style(name):
        figure = Figure(figsize=(WIDTH, max(1.6, 0.9 + 0.22 * min(height, MOST_ROWS))))
        ax = figure.add_subplot()
        ax.grid(False)
        normalize = Normalize(*span)
        image = ax.imshow(
            np.ma.masked_invalid(grid.values),
            cmap=colors,
            norm=normalize,
            aspect="auto",
            interpolation="nearest",
        )
        if each:
            _write_cells(ax, grid, colormaps[colors], normalize)
        _mark(ax, grid, each)
        rows = range(0, height, max(1, height // 24))
        ax.set_yticks(list(rows), [plots.short(grid.rows[row]) for row in rows])
        columns = list(range(0, width, max(1, width // 12))) if not each or width > 16 else list(range(width))
        ax.set_xticks(columns, [plots.short(grid.columns[column]) for column in columns])
        if each and grid.column_title == "phase":
            ax.tick_params(axis="x", rotation=30)
        ax.set_ylabel(grid.row_title)
        ax.set_xlabel(grid.column_title)
        figure.colorbar(image, ax=ax, label=unit, fraction=0.04, pad=0.02)
        return plots.svg(figure, name, title, text)


def _mark(ax: Any, grid: Heat, each: bool) -> None:
    """Frames around the accused, black on white so that they show on any color of the map.

    Where cells are hardly wider than a line a frame would hide them: there it is a ring.
    """
    for color, width in (("white", 3.5), ("black", 1.4)):
        if each:
            for row, column in grid.marked:
                ax.add_patch(
                    Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, edgecolor=color, linewidth=width)
                )
        else:
            places = np.array(grid.marked, dtype=float).reshape(-1, 2)
            ax.plot(
                places[:, 1], places[:, 0], "o", markersize=16, markerfacecolor="none",
                markeredgecolor=color, markeredgewidth=width,
            )  # fmt: skip


def _write_cells(ax: Any, grid: Heat, colors: Any, normalize: Normalize) -> None:
    """The number into each cell that matters, in black or white, whichever is further from its color."""
    for (row, column), value in np.ndenumerate(grid.values):
        if value >= 1:
            red, green, blue, _ = colors(normalize(value))
            dark = 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2 < 0.18
            ax.text(
                column, row, f"{value:.0f}", ha="center", va="center", fontsize=8,
                color="white" if dark else "black",
            )  # fmt: skip


def _comparison(comparison: Comparison, name: str) -> Picture:
    values = comparison.values
    typical = float(np.median(values))
    text = f"{len(values)} compared, typically {seconds(typical)}."
    for mark in comparison.accused[:3]:
        if mark.fastest < mark.slowest:
            text += (
                f" {mark.label}: {seconds(mark.fastest)} in its fastest iteration, "
                f"typically {seconds(mark.typical)}."
            )
        else:
            text += f" {mark.label}: {seconds(mark.typical)}."
    scale, unit = (1e3, "milliseconds") if typical < 1 else (1.0, "seconds")
    title = "Accused against peers" if comparison.accused else "How equal the ranks are"
    with plots.style(name):
        figure = Figure(figsize=(WIDTH, 1.5 + 0.24 * len(comparison.accused)))
        ax = figure.add_subplot()
        ax.grid(axis="y", visible=False)
        _draw_peers(ax, values * scale)
        for row, mark in enumerate(comparison.accused):
            y = -1 - row
            ax.plot([mark.fastest * scale, mark.slowest * scale], [y, y], color=ACCUSED, linewidth=2)
            ax.plot([mark.typical * scale], [y], "D", color=ACCUSED, markersize=6)
        ax.set_yticks(
            [0.4, *(-1 - row for row in range(len(comparison.accused)))],
            ["everybody", *(plots.short(mark.label) for mark in comparison.accused)],
        )
        right = max([float(values.max()), *(mark.slowest for mark in comparison.accused)]) * scale
        ax.set_xlim(0, 1.05 * right if right > 0 else 1)
        ax.set_ylim(-0.6 - len(comparison.accused), 1.1)
        ax.set_xlabel(f"{unit}, typical of the window (line: fastest to slowest)")
        drawn = plots.svg(figure, name, comparison.title, text)
    return Picture(f"{title}: {comparison.title}", text, drawn)


def _draw_peers(ax: Any, values: Floats) -> None:
    """A dot each, or a histogram where they are many."""
    if len(values) <= _STRIP:
        spread = np.random.default_rng(1).uniform(0.1, 0.7, len(values))
        ax.plot(values, spread, "o", color=OTHER, markersize=5, alpha=0.75)
        return
    counts, edges = np.histogram(values, bins=60)
    ax.bar(edges[:-1], 0.9 * np.sqrt(counts / counts.max()), np.diff(edges), align="edge", color=OTHER)
    ax.annotate(
        "height: square root of the count",
        (1, 1),
        xycoords="axes fraction",
        ha="right",
        va="top",
        color=MUTED,
    )


def _waiting(document: Document) -> Picture | None:
    if np.isnan(document.ranks.communication).all():
        return None
    if len(document.ranks) <= MOST_ROWS:
        return _bars(document)
    collective = max(
        document.collectives,
        key=lambda c: float(np.nanstd(c.seconds)) if len(c.seconds) else 0.0,
        default=None,
    )
    if collective is None:
        return None
    grid = by_place(document, collective.seconds * 1e3, "median")
    title = "Who waits for whom"
    text = (
        f"Time in {collective.op} ({collective.group}), milliseconds per iteration. Whoever comes last "
        "waits for nobody: the shortest times belong to the late ones, the longest to their victims."
    )
    if grid.joined > 1:
        text += f" Each column is the typical one of {grid.joined}."
    drawn = _draw_heat(
        grid,
        "waiting",
        title,
        text,
        "YlGnBu",
        (float(np.nanmin(grid.values)), float(np.nanmax(grid.values))),
        "ms per iteration",
    )
    return Picture(title, text, drawn)


def _bars(document: Document) -> Picture:
    ranks = document.ranks
    busy = np.nan_to_num(ranks.busy)
    waiting = np.nan_to_num(ranks.communication)
    rest = np.clip(np.nan_to_num(ranks.iteration) - busy - waiting, 0, None)
    least = int(np.nanargmin(ranks.communication))
    title = "Who waits for whom"
    text = (
        "An iteration of each rank: its own work, and what it spends in communication, most of which is "
        f"waiting where the bar is long. Rank {ranks.numbers[least]} spends least in communication, "
        f"{seconds(float(ranks.communication[least]))}; it is the one the others wait for, if they wait."
    )
    with plots.style("waiting"):
        figure = Figure(figsize=(WIDTH, 1.2 + 0.26 * len(ranks)))
        ax = figure.add_subplot()
        ax.grid(axis="y", visible=False)
        rows, left = np.arange(len(ranks)), np.zeros(len(ranks))
        for values, color, hatch, label in (
            (busy, OTHER, "", "own work (compute and host)"),
            (waiting, THIRD, "///", "communication, waiting included"),
            (rest, MUTED, "...", "neither"),
        ):
            ax.barh(
                rows, values, left=left, color=color, hatch=hatch, edgecolor=PAPER, linewidth=0, label=label
            )
            left = left + values
        culprits = document.culprits
        names = [f"{plots.short(n)} (accused)" if n in culprits else plots.short(n) for n in ranks.numbers]
        ax.set_yticks(rows, names)
        ax.invert_yaxis()
        ax.set_ylabel("rank")
        ax.set_xlabel("seconds per iteration")
        ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
        drawn = plots.svg(figure, "waiting", title, text)
    return Picture(title, text, drawn)
