"""From a table to a verdict."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from itertools import chain, islice
from pathlib import Path

from argus.diagnose import lockstep
from argus.diagnose.history import History
from argus.diagnose.pages import Pages
from argus.diagnose.slowdown import estimate
from argus.diagnose.verdict import LostTime, Verdict, accusations, culprits, unjudged
from argus.prometheus import Client
from argus.replay.feed import recorded_world_size
from argus.segment.window import LEAST
from argus.traces import Notes, Table

_LEAST_INTERVAL_MS = 250
_PAGE_TIMES = 2.0
"""The interval holds making a page, scraping it and judging it, part of it on other cores."""
_MS_PER_MEGABYTE = 40
"""What scraping and judging a megabyte of page takes Prometheus, with room to spare [measured]."""
_ATTEMPTS = 5
_SLOWER = 1.6
"""Factor on the interval after the machine did not keep up."""


Finish = Callable[[Client, lockstep.Beats, History], None]
"""Called when every page has been judged, while Prometheus still answers."""


class TooFewIterationsError(Exception):
    """No rank has enough iterations for a window."""


class UndecidableError(Exception):
    """Prometheus could not judge; the text says why."""


def judge(
    table: Table,
    notes: Notes,
    binary: Path,
    keep: Path | None,
    progress: Callable[[str], None],
    finish: Finish | None = None,
) -> Verdict:
    """Judge a table with the shipped rules.

    Args:
        table: The trace.
        notes: What was left out while reading.
        binary: Prometheus.
        keep: Folder for Prometheus's configuration, rules, data and log; None: nothing is kept.
        progress: Told what is being done.
        finish: Called at the end, while Prometheus still answers.

    Raises:
        TooFewIterationsError: Fewer than four iterations.
        UndecidableError: The machine is too slow, or Prometheus stopped.
        argus.prometheus.StartError: Prometheus did not start.
    """
    iterations = table.iterations
    counts = table.iterations_by_rank()
    most = max(counts.values())
    if most < LEAST:
        raise TooFewIterationsError(
            f"no rank has more than {most} iterations, and the rules judge windows of at least {LEAST}; "
            "record more iterations"
        )
    lost, history, order = _run(table, binary, keep, progress, finish)
    alerts, undecided = accusations(history, order)
    progress("estimating the slowdown")
    blamed = culprits(alerts)
    first = min((alert.first_iteration for alert in alerts), default=iterations[0])
    return Verdict(
        run_id=next(iter(table.ranks.values())).run_id,
        ranks=len(table.ranks),
        iterations=iterations,
        alerts=alerts,
        undecided=undecided,
        unjudged=unjudged(table, counts, LEAST),
        lost_gpu_hours=lost.seconds * recorded_world_size(table) / 3600,
        slowdown=estimate(table, blamed, first),
        skipped=list(notes.lines()),
    )


def _run(
    table: Table,
    binary: Path,
    keep: Path | None,
    progress: Callable[[str], None],
    finish: Finish | None,
) -> tuple[LostTime, History, list[int]]:
    slower = 1.0
    for attempt in range(_ATTEMPTS):
        lost = LostTime(table)
        pages = Pages(table, lost.watch)
        try:
            made, interval_ms = _begin(iter(pages), slower)
            count = len(table.iterations) + 1

            def told(beat: int, count: int = count, interval_ms: int = interval_ms) -> None:
                left = (count - beat) * interval_ms / 1000
                progress(f"iteration {min(beat, count - 1)} of {count - 1} judged, about {left:.0f} s left")

            if keep and attempt:
                shutil.rmtree(keep / "data", ignore_errors=True)
            history, order = lockstep.run(made, interval_ms, binary, keep, told, finish)
            return lost, history, order
        except lockstep.LostBeatError:
            slower *= _SLOWER
            progress("this machine did not keep up, beginning again more slowly")
        except lockstep.StalledError as error:
            raise UndecidableError(str(error)) from error
        finally:
            pages.close()
    raise UndecidableError(
        f"this machine is too slow or too busy to judge {len(table.ranks)} ranks; try again when it is idle"
    )


def _begin(pages: Iterator[tuple[int, bytes]], slower: float) -> tuple[Iterator[tuple[int, bytes]], int]:
    """Make the first pages, up to a full window, and choose the interval by what one takes."""
    first = list(islice(pages, LEAST - 1))
    began = time.perf_counter()
    first += islice(pages, 2)
    took_ms = (time.perf_counter() - began) * 1000 / max(1, len(first) - LEAST + 1)
    size = max(len(page) for _, page in first)
    interval_ms = max(_LEAST_INTERVAL_MS, _PAGE_TIMES * took_ms + _MS_PER_MEGABYTE * size / 1e6)
    return chain(first, pages), round(interval_ms * slower)
