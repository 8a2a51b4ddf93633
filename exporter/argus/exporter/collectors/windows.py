"""The sliding window's summaries: what the rules read."""

from __future__ import annotations

from collections.abc import Iterator

from argus import catalogue
from argus.exporter.collectors.labels import rank_labels
from argus.exporter.exposition.families import Point, Summary
from argus.exporter.sources import Rank


def collect(rank: Rank) -> Iterator[Point]:
    """Window quantiles with cumulative sums and counts; nothing below four iterations."""
    state = rank.state
    window = state.window() if rank.up else None
    if window is None:
        return
    labels = rank_labels(state)
    completed = state.completed
    yield Point(catalogue.WINDOW_ITERATIONS, labels, window.iterations)
    yield Point(
        catalogue.WINDOW_ITERATION_SECONDS,
        labels,
        Summary(window.wall, state.iteration_sum_ns / 1e9, completed),
    )
    if window.busy is not None:
        yield Point(
            catalogue.WINDOW_BUSY_SECONDS, labels, Summary(window.busy, state.busy_sum_ns / 1e9, completed)
        )
    for phase, spread in window.phases:
        yield Point(
            catalogue.WINDOW_PHASE_SECONDS,
            (*labels, phase.name, phase.kind),
            Summary(spread, phase.seconds.sum_ns / 1e9, completed),
        )
    for work, done in window.work:
        yield Point(catalogue.WINDOW_WORK, (*labels, work.unit, work.phase), done.amount)
        for phase, pace in done.paces:
            yield Point(
                catalogue.WINDOW_WORK_SECONDS,
                (*labels, work.unit, phase.name, phase.kind),
                Summary(pace, phase.seconds.sum_ns / 1e9, round(work.total)),
            )
    for collective, values in window.collectives:
        own = (*labels, collective.op, collective.group, collective.group_id)
        seconds = collective.seconds
        yield Point(
            catalogue.WINDOW_COLLECTIVE_SECONDS,
            own,
            Summary((values.fastest, values.typical), seconds.sum_ns / 1e9, seconds.count),
        )
        yield Point(catalogue.WINDOW_COLLECTIVE_OCCURRENCES, own, values.occurrences)
        if values.bandwidth is not None:
            yield Point(catalogue.WINDOW_COLLECTIVE_BANDWIDTH, own, round(values.bandwidth))
