"""A private Prometheus that sees one more iteration with every evaluation, neither more nor less.

Scrapes and evaluations keep Prometheus's own real-time beat of one interval.  A
page is shown only after the previous one has been evaluated, and every page is
evaluated exactly once; where the machine is too slow for that the run is begun
again with a longer interval.  So the verdict does not depend on the machine.

One interval stands for a nominal minute: the rules are the shipped ones,
rendered for a scrape interval of one minute and then compressed.  Their groups
are joined into one, so that every evaluation sees one instant.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from argus import ruleset
from argus.diagnose.history import History
from argus.diagnose.pages import BEAT, numbered
from argus.diagnose.show import Show
from argus.prometheus import Client, Prometheus, QueryError, Sample

NOMINAL_MINUTE = 60.0
DONE = "argus_replay:beat:done"
"""Recorded last of all rules: the page that this evaluation has seen."""

_SLOW = "rank_phase:argus_phase_slow:ratio"
_OF_KIND = {"compute": "ArgusComputeStraggler", "host": "ArgusHostStall"}

_HELD = 0.55
"""Part of the interval up to which a scrape is held: it must be answered within 0.8 (show)."""
_LEAST_ROOM = 64 << 10
_PATIENCE = 120.0
"""Seconds without any progress after which Prometheus is given up."""


class LostBeatError(Exception):
    """The machine did not keep up with the interval."""


class StalledError(Exception):
    """Prometheus stopped scraping or evaluating."""


@dataclass(frozen=True)
class Beats:
    """When the pages were evaluated.

    Attributes:
        first: Unix seconds of the evaluation of the first page.
        interval: Seconds between two evaluations.
        iterations: Iteration numbers in the order of beats.
    """

    first: float
    interval: float
    iterations: list[int]

    def time(self, beat: int) -> float:
        """Unix seconds of the evaluation of a beat, counted from 1."""
        return self.first + (beat - 1) * self.interval


def configuration(address: str, interval_ms: int) -> str:
    """Prometheus's configuration: one target, and the rules beside it."""
    every = f"{interval_ms}ms"
    return yaml.safe_dump(
        {
            "global": {"scrape_interval": every, "scrape_timeout": every, "evaluation_interval": every},
            "rule_files": ["rules/*.yml"],
            "scrape_configs": [{"job_name": "argus", "static_configs": [{"targets": [address]}]}],
        }
    )


def joined_rules(interval_ms: int) -> str:
    """The shipped rules as one group, each after what it reads, and the mark at the end."""
    files = ruleset.render(scrape_interval=NOMINAL_MINUTE, time_scale=interval_ms / 1000 / NOMINAL_MINUTE)
    groups = [group for text in files.values() for group in yaml.safe_load(text)["groups"]]
    rules = [rule for group in _ordered(groups) for rule in group["rules"]]
    rules.append({"record": DONE, "expr": f"max({BEAT})"})
    return ruleset.dump({"groups": [{"name": "argus", "interval": f"{interval_ms}ms", "rules": rules}]})


def _ordered(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Groups after those whose recorded series they read; a circle keeps the files' order."""
    left, ordered = list(groups), []
    while left:
        records = {id(g): [r["record"] for r in g["rules"] if "record" in r] for g in left}

        def needs(group: dict[str, Any], records: dict[int, list[str]] = records) -> bool:
            texts = [rule["expr"] for rule in group["rules"]]
            others = [name for key, names in records.items() if key != id(group) for name in names]
            return any(name in text for name in others for text in texts)

        chosen = next((group for group in left if not needs(group)), left[0])
        ordered.append(chosen)
        left.remove(chosen)
    return ordered


def run(
    pages: Iterator[tuple[int, bytes]],
    interval_ms: int,
    binary: Path,
    directory: Path | None,
    progress: Callable[[int], None],
    finish: Callable[[Client, Beats, History], None] | None = None,
) -> tuple[History, list[int]]:
    """Show every page, and the last one once more.

    The page that is repeated lets alerts complete whose condition must hold at
    two evaluations; that is there for scrapes at different moments, which don't
    exist here.

    Args:
        pages: (iteration, page).
        interval_ms: Milliseconds between scrapes, and between evaluations.
        binary: Prometheus.
        directory: Where it works, left behind; None: a temporary folder, removed.
        progress: Told the number of pages evaluated.
        finish: Called at the end, while Prometheus still answers.

    Returns:
        The alerts' history, and the iterations in the order of beats.

    Raises:
        LostBeatError: Begin again with a longer interval.
        StalledError: Prometheus does not go on.
        argus.prometheus.StartError: It did not start.
    """
    interval = interval_ms / 1000
    show = Show(interval)
    flags = [
        f"--query.lookback-delta={5 * interval_ms}ms",
        "--storage.tsdb.retention.time=10d",
    ]
    try:
        iteration, page = next(pages)
        show.show(numbered(b"", 0))
        rules = {"argus.yml": joined_rules(interval_ms)}
        config = configuration(show.address, interval_ms)
        with Prometheus(config, rules, binary=binary, directory=directory, flags=flags) as prometheus:
            history, iterations = History(), [iteration]
            before = _settle(prometheus, show, interval)
            show.show(numbered(page, 1))
            for beat in range(1, 1 << 62):
                following = next(pages, None)
                _await(prometheus, show, beat, before, interval)
                history.take(beat, _suspects(prometheus) + prometheus.client.alerts())
                progress(beat)
                if following is None:
                    if beat > len(iterations):
                        if finish is not None:
                            finish(prometheus.client, _beats(prometheus, iterations, interval), history)
                        return history, iterations
                else:
                    iterations.append(following[0])
                    page = following[1]
                show.show(numbered(page, beat + 1))
    finally:
        show.close()
    raise AssertionError("unreachable")


def _settle(prometheus: Prometheus, show: Show, interval: float) -> int:
    """Return at a moment at which the first page can be shown; the number of evaluations before it.

    Scrapes and evaluations come at fixed but arbitrary moments of the interval.
    Where a scrape comes less than about half an interval before an evaluation,
    it is held until that is over, so that the next one finds a page that was
    stored long before; otherwise it is answered when it comes.
    """
    first = _next_evaluation(prometheus, 0, interval)
    if time.monotonic() - show.arrived < _HELD * interval:
        show.hold()
        return _next_evaluation(prometheus, first, interval)
    show.hold()
    return first


def _next_evaluation(prometheus: Prometheus, count: int, interval: float) -> int:
    """Wait for an evaluation after the first ``count``; the number of evaluations."""
    for _, evaluations in _progress(prometheus, interval):
        if evaluations > count:
            return evaluations
    raise AssertionError("unreachable")


def _beats(prometheus: Prometheus, iterations: list[int], interval: float) -> Beats:
    """Evaluations come exactly one interval apart, so the time of one gives all."""
    try:
        evaluations = prometheus.client.samples(f"{DONE}[10d]")[0]
    except QueryError as error:
        raise StalledError(f"Prometheus does not answer: {error}\n{prometheus.tail()}") from error
    first = float(evaluations.times[np.flatnonzero(evaluations.values == 1)[0]])
    return Beats(first, interval, iterations)


def _await(prometheus: Prometheus, show: Show, beat: int, before: int, interval: float) -> None:
    """Wait until the page of ``beat`` has been evaluated, and once only."""
    for done, evaluations in _progress(prometheus, interval):
        if evaluations - before > done or show.repeated:
            raise LostBeatError
        if done == beat:
            return


def _progress(prometheus: Prometheus, interval: float) -> Iterator[tuple[int, int]]:
    """The last page that was evaluated, and the number of evaluations, asked again and again."""
    query = f'{DONE} or label_replace(count_over_time({DONE}[10d]), "of", "evaluations", "", "")'
    deadline = time.monotonic() + max(_PATIENCE, 20 * interval)
    while prometheus.poll() is None and time.monotonic() < deadline:
        _check_room(prometheus.directory)
        samples = _ask(prometheus, query)
        yield (
            next((int(s.value) for s in samples if "of" not in s.labels), 0),
            next((int(s.value) for s in samples if "of" in s.labels), 0),
        )
        time.sleep(min(0.05, interval / 20))
    raise StalledError(f"Prometheus stopped evaluating the rules:\n{prometheus.tail()}")


def _check_room(directory: Path) -> None:
    """A Prometheus that can't write goes on answering, and stores nothing."""
    status = os.statvfs(directory)
    if status.f_bfree * status.f_frsize < _LEAST_ROOM:
        raise StalledError(
            f"{directory} is full, so Prometheus can't store what it is shown; make room there, or set "
            "TMPDIR to a directory that has some"
        )


def _suspects(prometheus: Prometheus) -> list[dict[str, Any]]:
    """Slow ranks as the rules see them now, as pending warnings: the alerts themselves want to see more."""
    return [
        {
            "labels": {
                "alertname": _OF_KIND[sample.labels["kind"]],
                **{name: sample.labels[name] for name in ("phase", "rank", "role", "run_id")},
                "severity": "warning",
            },
            "annotations": {
                "summary": f"Rank {sample.labels['rank']} takes {sample.value:.2f} times as long "
                f"as its peers for phase {sample.labels['phase']}"
            },
            "state": "pending",
        }
        for sample in _ask(prometheus, _SLOW)
    ]


def _ask(prometheus: Prometheus, query: str) -> list[Sample]:
    try:
        return prometheus.client.query(query)
    except QueryError as error:
        raise StalledError(f"Prometheus does not answer: {error}\n{prometheus.tail()}") from error
