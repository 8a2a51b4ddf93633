"""Matplotlib figures as SVG that fits into a page: light and dark, no ids twice, a text beside the picture.

Colours are drawn as stand-ins and then replaced by the page's CSS variables, so that one picture follows
the reader's theme and the printer's.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

INK, MUTED, GRID, PAPER = "#010101", "#020202", "#030303", "#fefefe"
ACCUSED, OTHER, THIRD = "#c00001", "#0000c1", "#00c002"
_VARIABLES = {
    INK: "ink", MUTED: "muted", GRID: "grid", PAPER: "paper",
    ACCUSED: "accused", OTHER: "other", THIRD: "third",
}  # fmt: skip

WIDTH = 9.0
"""Inches of a picture; the page scales it."""
_LONGEST_LABEL = 40

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text: it can be read aloud, searched and themed
    "text.parse_math": False,  # names may hold any character
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "figure.facecolor": "none",
    "timezone": "UTC",
}
_IDS = re.compile(r'(?P<before>\bid="|href="#|url\(#)(?P<id>[^")]+)')


def short(name: str) -> str:
    """A name from outside, as long and as plain as a label beside a picture may be."""
    shown = "".join(c if c.isprintable() else "\ufffd" for c in name[:_LONGEST_LABEL])
    return shown if len(name) <= _LONGEST_LABEL else f"{shown[:-1]}…"


@contextmanager
def style(name: str) -> Iterator[None]:
    """Matplotlib's settings for the picture ``name``; the same input gives the same bytes."""
    with mpl.rc_context({**_STYLE, "svg.hashsalt": name}):
        yield


def svg(figure: Figure, name: str, title: str, text: str) -> str:
    """The figure as an inline SVG.

    Args:
        figure: Drawn under `style`.
        name: Letters and digits, unique on the page.
        title: What the picture shows.
        text: What it tells, for those who can't see it.
    """
    buffer = io.StringIO()
    with warnings.catch_warnings():
        # It only measures texts by its own font; the reader's has the characters.
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        figure.savefig(
            buffer, format="svg", bbox_inches="tight", pad_inches=0.05,
            metadata={"Date": None, "Creator": None, "Format": None, "Type": None},
        )  # fmt: skip
    drawn = buffer.getvalue()
    drawn = drawn[drawn.index("<svg") :]
    drawn = re.sub(r"<metadata>.*?</metadata>", "", drawn, flags=re.DOTALL)
    drawn = _IDS.sub(lambda match: f"{match['before']}{name}-{match['id']}", drawn)
    for color, variable in _VARIABLES.items():
        drawn = drawn.replace(color, f"var(--{variable})")
    opening, body = drawn.split(">", 1)
    view = re.search(r'viewBox="[^"]+"', opening)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'{view[0] if view else ""} role="img" aria-labelledby="{name}-title {name}-text">'
        f'<title id="{name}-title">{escape(title)}</title><desc id="{name}-text">{escape(text)}</desc>'
        f"{body}"
    )
