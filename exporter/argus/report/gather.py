"""From a Prometheus to a document."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable

import numpy as np

from argus.prometheus import Client, Sample
from argus.report.compare import comparisons
from argus.report.findings import findings, selector
from argus.report.model import Axis, Collective, Course, Document, Finding, Floats, PhaseTable, Ranks
from argus.report.words import rank_number, rank_order, verdict

PLACES = ("pp", "dp", "tp", "cp", "ep")
_COLLECTIVES_KEPT = 12
_COUNTED = 40
_NEARLY_ALL = 0.9


class NothingError(Exception):
    """There is nothing to report on; the message says why and what there is instead."""


def gather(
    client: Client,
    run_id: str,
    axis: Axis,
    source: str,
    fired: list[Finding] | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> Document:
    """Ask for everything that a report shows.

    Args:
        client: A Prometheus that has evaluated the shipped rules.
        run_id: The run.
        axis: The span.
        source: Where the data is from, in words.
        fired: The findings, where they are known already; None: ask for them.
        progress: Told what is being done.

    Raises:
        NothingError: No such run in the span, or the rules were not evaluated.
        argus.prometheus.QueryError: Prometheus does not answer, or refuses.
    """
    mine = selector(run_id)
    progress("asking for the iteration time")
    iteration = _course(client, f"run:argus_window_iteration_seconds:median{{{mine}}}", axis)
    if not len(iteration.times):
        raise NothingError(_missing(client, run_id, axis))
    slowest = _course(client, f"run:argus_window_iteration_seconds:worst{{{mine}}}", axis)
    if fired is None:
        progress("asking for the alerts")
        fired = findings(client, run_id, axis)
    moment = choose_moment(fired, iteration, _reporting(client, mine, axis), axis)
    progress("asking for the ranks")
    ranks = _ranks(client, mine, moment)
    phases = _phases(client, mine, moment, ranks)
    collectives = _collectives(client, mine, moment, ranks)
    world = client.query(f"max(argus_world_size{{{mine}}})", moment)
    document = Document(
        run_id=run_id,
        source=source,
        axis=axis,
        moment=moment,
        verdict=verdict(fired),
        findings=fired,
        world_size=int(world[0].value) if world and np.isfinite(world[0].value) else len(ranks),
        iteration=iteration,
        slowest=slowest,
        ranks=ranks,
        phases=phases,
        collectives=collectives,
        lost_gpu_hours=_lost(client, mine, axis),
    )
    document.comparisons = comparisons(client, mine, document)
    document.notes = _notes(client, mine, document)
    return document


def _course(client: Client, expression: str, axis: Axis) -> Course:
    rows = client.query_range(f"max({expression})", axis.start, axis.end, axis.step)
    if not rows:
        return Course(np.array([]), np.array([]))
    finite = np.isfinite(rows[0].values)
    return Course(rows[0].times[finite], rows[0].values[finite])


def _missing(client: Client, run_id: str, axis: Axis) -> str:
    """Why there is nothing."""
    window = f"{max(1, round(axis.end - axis.start))}s"
    there = client.query(
        f"group by (run_id) (last_over_time(argus_window_iteration_seconds[{window}]))", axis.end
    )
    runs = sorted(sample.labels.get("run_id", "") for sample in there)
    if run_id in runs:
        return (
            f"{client.url} has run {run_id}, but not the series that ARGUS's rules record; "
            "load the rules (argus rules --output DIR, then rule_files in prometheus.yml)"
        )
    if not runs:
        return (
            f"{client.url} has no run at all in this range; is it scraping `argus exporter`, "
            "and is the range right (--last, --from, --to)?"
        )
    near = difflib.get_close_matches(run_id, runs, 5, 0.5) or runs[:5]
    return (
        f"{client.url} has no run {run_id!r} in this range; there {'is' if len(near) == 1 else 'are'} "
        f"{', '.join(near)}{', …' if len(runs) > len(near) else ''}"
    )


def _reporting(client: Client, mine: str, axis: Axis) -> Course:
    """How many ranks have a window, at some moments: each reads a series of every rank."""
    step = max(axis.step, (axis.end - axis.start) / _COUNTED)
    rows = client.query_range(
        f'count(argus_window_iteration_seconds{{{mine}, quantile="0.5"}})', axis.start, axis.end, step
    )
    return Course(rows[0].times, rows[0].values) if rows else Course(np.array([]), np.array([]))


def choose_moment(fired: list[Finding], iteration: Course, reporting: Course, axis: Axis) -> float:
    """When to look at the ranks: the last moment at which the gravest accusation holds.

    Where ranks are leaving by then, it is the last one at which nearly all of them were there.
    """
    last = float(iteration.times[-1])
    for finding in fired:
        if finding.severity != "info":
            last = min(last, finding.until or axis.end)
            break
    before = reporting.times <= last
    there, times = reporting.values[before], reporting.times[before]
    if len(there) and there[-1] < _NEARLY_ALL * there.max():
        return float(times[there >= _NEARLY_ALL * there.max()][-1])
    return last


def _ranks(client: Client, mine: str, moment: float) -> Ranks:
    typical = client.query(f'argus_window_iteration_seconds{{{mine}, quantile="0.5"}}', moment)
    by_rank = {sample.labels.get("rank", ""): sample for sample in typical}
    numbers = sorted(by_rank, key=rank_order)
    index = {number: i for i, number in enumerate(numbers)}
    information = client.query(f"topk by (rank) (1, argus_rank_info{{{mine}}})", moment)
    nodes = [""] * len(numbers)
    places = {name: np.full(len(numbers), -1, np.int64) for name in PLACES}
    for sample in information:
        row = index.get(sample.labels.get("rank", ""))
        if row is None:
            continue
        nodes[row] = sample.labels.get("node", "")
        for name, array in places.items():
            place = rank_number(sample.labels.get(name, ""))
            array[row] = -1 if place is None else place
    busy = client.query(f'argus_window_busy_seconds{{{mine}, quantile="0.5"}}', moment)
    communication = client.query(
        f'sum by (rank) (argus_window_phase_seconds{{{mine}, quantile="0.5", kind="communication"}})', moment
    )
    return Ranks(
        numbers=numbers,
        roles=[by_rank[number].labels.get("role", "") for number in numbers],
        nodes=nodes,
        places=places,
        iteration=_array(typical, index),
        busy=_array(busy, index),
        communication=_array(communication, index),
    )


def _per_iteration(mine: str) -> str:
    """Seconds per iteration in each collective."""
    return (
        f'argus_window_collective_seconds{{{mine}, quantile="0.5"}} '
        f"* on (run_id, role, rank, op, group, group_id) argus_window_collective_occurrences{{{mine}}}"
    )


def _array(samples: Iterable[Sample], index: dict[str, int]) -> Floats:
    values = np.full(len(index), np.nan)
    for sample in samples:
        row = index.get(sample.labels.get("rank", ""))
        if row is not None and np.isfinite(sample.value):
            values[row] = sample.value
    return values


def _phases(client: Client, mine: str, moment: float, ranks: Ranks) -> PhaseTable:
    samples = client.query(
        f'argus_window_phase_seconds{{{mine}, quantile="0.5", kind=~"compute|host"}}', moment
    )
    kinds = {sample.labels["phase"]: sample.labels["kind"] for sample in samples}
    index = {number: i for i, number in enumerate(ranks.numbers)}
    columns = {name: _array((s for s in samples if s.labels["phase"] == name), index) for name in kinds}
    names = sorted(columns, key=lambda name: -float(np.nansum(columns[name])))
    seconds = np.stack([columns[name] for name in names], axis=1) if names else np.empty((len(ranks), 0))
    reference = np.full_like(seconds, np.nan)
    roles = np.array(ranks.roles)
    for role in set(ranks.roles):
        rows = np.flatnonzero(roles == role)
        for column in range(seconds.shape[1]):
            there = seconds[rows, column][~np.isnan(seconds[rows, column])]
            if len(there) >= 2:
                reference[rows, column] = there.min() if len(there) == 2 else np.median(there)
    return PhaseTable(names, [kinds[name] for name in names], seconds, reference)


def _collectives(client: Client, mine: str, moment: float, ranks: Ranks) -> list[Collective]:
    samples = client.query(f"sum by (rank, op, group) ({_per_iteration(mine)})", moment)
    index = {number: i for i, number in enumerate(ranks.numbers)}
    found = []
    for op, group in sorted({(s.labels["op"], s.labels["group"]) for s in samples}):
        own = (s for s in samples if (s.labels["op"], s.labels["group"]) == (op, group))
        seconds = _array(own, index)
        if not np.isnan(seconds).all():
            found.append(Collective(op, group, seconds))
    found.sort(key=lambda collective: -float(np.nansum(collective.seconds)))
    return found[:_COLLECTIVES_KEPT]


def _lost(client: Client, mine: str, axis: Axis) -> float | None:
    """The run's lost GPU-hours: the rate that the rules record, times the time it held."""
    rows = client.query_range(f"max(run:argus_lost_gpus:max{{{mine}}})", axis.start, axis.end, axis.step)
    return float(rows[0].values[np.isfinite(rows[0].values)].sum()) * axis.step / 3600 if rows else None


def _notes(client: Client, mine: str, document: Document) -> list[str]:
    """What limits the verdict."""
    said = []
    ranks = document.ranks
    if not len(ranks):
        said.append("the ranks: at that moment none of them reported")
    elif len(ranks) < document.world_size:
        said.append(f"{document.world_size - len(ranks)} of {document.world_size} ranks did not report then")
    alone = sorted({role for role in ranks.roles if ranks.roles.count(role) == 1})
    if alone:
        said.append(f"who is slow within {', '.join(alone[:8])}: one rank has no peers to compare with")
    mixed = client.query(
        f'group by (phase) (argus_window_phase_seconds{{{mine}, quantile="0.5", kind="mixed"}})',
        document.moment,
    )
    if mixed:
        names = ", ".join(sorted(sample.labels["phase"] for sample in mixed))
        said.append(f"{names}: work and waiting are mixed there (kind mixed)")
    unjudged = client.query(f"max(run:argus_links_unjudged:count{{{mine}}}) > 0", document.moment)
    if unjudged:
        said.append(
            f"{unjudged[0].value:.0f} communicators: their members are not known, or do not all report"
        )
    return said
