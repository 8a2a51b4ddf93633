"""Every page that every node serves at every scrape, rendered by the exporter's own code."""

from __future__ import annotations

import gzip
import multiprocessing
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from argus.drill.timing import Iteration
from argus.exporter.exposition.classic import Classic
from argus.exporter.exposition.families import Family, Summary
from argus.exporter.exposition.negotiate import OPENMETRICS, PROTOBUF, Format
from argus.exporter.selection import Series
from benchmarks.scale.job import Job, Node

FORMATS: dict[str, Format] = {"text": OPENMETRICS, "protobuf": PROTOBUF}


@dataclass(frozen=True)
class Target:
    """One node of one job."""

    job: int
    node: int
    name: str


def targets(jobs: Sequence[Job]) -> list[Target]:
    """All nodes of all jobs."""
    return [
        Target(number, node, f"{job.run_id}-node{node}")
        for number, job in enumerate(jobs)
        for node in range(job.topology.nodes)
    ]


@dataclass
class Book:
    """Pages in a file.

    Attributes:
        path: The file.
        index: (targets, scrapes, 2): where a page begins in it, and its length.
        offsets: (targets,): seconds from the beginning to a target's first scrape.
        interval: Seconds between its scrapes.
        content_type: Of all pages.
    """

    path: Path
    index: np.ndarray
    offsets: np.ndarray
    interval: float
    content_type: str

    @property
    def scrapes(self) -> int:
        return self.index.shape[1]


def series_per_rank(job: Job, series: Series, format_: Format) -> float:
    """How many series of each rank a Prometheus makes of one page, of a node in the middle of the job."""
    until = 8 * job.profile.iteration  # there are windows from the fourth iteration on
    node = Node(job, job.timeline(until), job.topology.nodes // 2, series)
    try:
        families = node.families(until / job.speed)
    finally:
        node.close()
    ranks = len(job.topology.ranks_of_node(job.topology.nodes // 2))
    if format_ is PROTOBUF:
        return sum(map(_native, families)) / ranks
    lines = format_.encode(families, Classic.ITERATIONS).splitlines()
    return sum(not line.startswith(b"#") for line in lines) / ranks


def _native(family: Family) -> int:
    """Series of a family where histograms are native."""
    summaries = [value for _, value in family.series if isinstance(value, Summary)]
    quantiles = sum(number is not None for each in summaries for number in each.quantiles)
    return len(family.series) - len(summaries) + quantiles + 2 * sum(each.totals for each in summaries)


_Work = tuple[Sequence[Job], list[list[Iteration]], list[Target], np.ndarray, Format, Series]
_work: _Work | None = None
"""What the worker processes inherit by forking."""


def _render(number: int) -> list[bytes]:
    """All pages of one target."""
    assert _work is not None
    jobs, timelines, everyone, moments, format_, series = _work
    target = everyone[number]
    node = Node(jobs[target.job], timelines[target.job], target.node, series)
    try:
        return [
            gzip.compress(format_.encode(node.families(float(now)), Classic.ITERATIONS), 6, mtime=0)
            for now in moments[number]
        ]
    finally:
        node.close()


def render(
    jobs: Sequence[Job],
    offsets: np.ndarray,
    scrapes: int,
    interval: float,
    format_: Format,
    series: Series,
    path: Path,
    progress: Callable[[str], None] = lambda text: None,
) -> Book:
    """Render all pages into a file.

    Args:
        jobs: What is served.
        offsets: (targets,): seconds from the beginning to each target's first scrape.
        scrapes: How many pages of each target.
        interval: Seconds between two of them.
        format_: Their format.
        series: What of their series is served.
        path: The file.
        progress: Told how far it is.
    """
    global _work
    everyone = targets(jobs)
    progress("computing the jobs' iterations")
    timelines = [job.timeline(scrapes * interval * job.speed) for job in jobs]
    moments = offsets[:, None] + interval * np.arange(scrapes)
    _work = (jobs, timelines, everyone, moments, format_, series)
    index = np.zeros((len(everyone), scrapes, 2), np.int64)
    try:
        with path.open("wb") as file, multiprocessing.get_context("fork").Pool(os.cpu_count()) as pool:
            for number, pages in enumerate(pool.imap(_render, range(len(everyone)), chunksize=4)):
                _append(file, index[number], pages)
                progress(f"rendering the pages of {number + 1} of {len(everyone)} nodes")
    finally:
        _work = None
    return Book(path, index, offsets, interval, format_.content_type)


def _append(file: BinaryIO, index: np.ndarray, pages: list[bytes]) -> None:
    for scrape, page in enumerate(pages):
        index[scrape] = file.tell(), len(page)
        file.write(page)
