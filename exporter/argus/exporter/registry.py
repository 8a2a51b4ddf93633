"""One scrape: every collector over every rank, each on its own.

A collector that fails loses its points (for the rank at fault, if it is a
rank's), reports ``argus_exporter_collector_success 0`` and one line in the log;
the scrape goes on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Protocol

from argus import _native, catalogue
from argus.exporter.collectors import RANK_COLLECTORS, RankCollector, node
from argus.exporter.exposition.families import Family, Point, group
from argus.exporter.selection import Series, select
from argus.exporter.sources import Rank, RankSource, Scan, merge

_LOG = logging.getLogger(__name__)

_REPEAT_S = 600.0
"""The same kind of failure is logged again after this time."""

NODE_COLLECTORS = ("gpu", "segments", "process", "snapshots")
COLLECTORS = (*RANK_COLLECTORS, *NODE_COLLECTORS)
"""Names of all collectors."""


class CollectorError(Exception):
    """A collector that knows what is wrong; the message is all that there is to say."""


class GpuSource(Protocol):
    """Knows the node's GPUs, see ``argus.hardware.gpus``."""

    @property
    def present(self) -> bool:
        """Whether there is anything to tell."""
        ...

    def points(self, ranks: Iterable[Rank]) -> Iterable[Point]:
        """Their series, labelled by the rank that uses each."""
        ...

    def check(self) -> Iterable[Point]:
        """No series; raises ``CollectorError`` where some are missing."""
        ...


class Registry:
    """Collects the families of one scrape.

    Args:
        sources: Where ranks come from; of equal ranks the first source's stands.
        collectors: Rank collectors by name.
        disabled: Names from ``COLLECTORS`` that do not run.
        snapshots: Returns the metrics of the receiver of alerts, where there is one.
        gpus: The node's GPUs, where they are watched.
        series: Which series there are.
        version: For ``argus_exporter_build_info``; None leaves the exporter's own metrics out, as a
            replay's lock-step scrapes need.
    """

    def __init__(
        self,
        *sources: RankSource,
        collectors: Mapping[str, RankCollector] = RANK_COLLECTORS,
        disabled: Collection[str] = (),
        snapshots: Callable[[], Iterable[Point]] | None = None,
        gpus: GpuSource | None = None,
        series: Series = Series.ALL,
        version: str | None = None,
    ) -> None:
        self._sources = sources
        self._rank_collectors = {k: v for k, v in collectors.items() if k not in disabled}
        self._disabled = frozenset(disabled)
        self._snapshots = snapshots
        self._gpus = gpus if "gpu" not in disabled else None
        self._series = series
        self._version = version
        self._process = node.Process()
        self._lock = threading.Lock()
        self._failures: dict[tuple[str, str], float] = {}

    def collect(self, now_ns: int | None = None) -> list[Family]:
        """Collect every family that has something to say.

        Args:
            now_ns: Now on the segments' clock; CLOCK_MONOTONIC where None.
        """
        with self._lock:
            return self._collect(_native.monotonic_ns() if now_ns is None else now_ns)

    def _collect(self, now_ns: int) -> list[Family]:
        points: list[Point] = []
        scan = self._scan(points, now_ns)
        for name, collector in self._rank_collectors.items():
            parts = [partial(collector, rank) for rank in scan.ranks]
            self._run(points, name, parts)
        if self._gpus is not None and self._gpus.present:
            self._run(points, "gpu", [partial(self._gpus.points, scan.ranks), self._gpus.check])
        if self._version is not None:
            if "segments" not in self._disabled:
                points.extend(node.segments(scan))
            if "process" not in self._disabled:
                self._run(points, "process", [self._process.collect])
            if self._snapshots is not None and "snapshots" not in self._disabled:
                self._run(points, "snapshots", [self._snapshots])
            points.extend(node.build_info(self._version))
        return group(select(points, self._series))

    def _scan(self, points: list[Point], now_ns: int) -> Scan:
        """Look for ranks; a source that fails loses its ranks, and is the collector ``segments``."""
        scans: list[Scan] = []

        def look(source: RankSource) -> Iterable[Point]:
            scans.append(source.scan(now_ns))
            return ()

        self._run(points, "segments", [partial(look, source) for source in self._sources])
        return merge(scans)

    def _run(self, points: list[Point], name: str, parts: Iterable[Callable[[], Iterable[Point]]]) -> None:
        began = time.perf_counter()
        success = True
        for part in parts:
            try:
                points.extend(list(part()))
            except Exception as error:  # whatever it is, the other collectors are not to suffer
                success = False
                self._report(name, error)
        if self._version is not None:
            points.append(Point(catalogue.COLLECTOR_SUCCESS, (name,), int(success)))
            took = round(time.perf_counter() - began, 6)
            points.append(Point(catalogue.COLLECTOR_DURATION, (name,), took))

    def _report(self, name: str, error: Exception) -> None:
        now = time.monotonic()
        kind = (name, type(error).__name__)
        if now - self._failures.get(kind, float("-inf")) < _REPEAT_S:
            return
        self._failures[kind] = now
        if isinstance(error, CollectorError):
            _LOG.warning("collector %s: %s", name, error)
        else:
            _LOG.error("collector %s failed, its metrics are missing: %r", name, error, exc_info=error)
