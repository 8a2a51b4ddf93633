"""Every query of every panel, on a real Prometheus that has seen every situation of `argus drill`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from benchmarks.panel_queries import PanelQuery, Times, load, measure, queries, resolve, substitute, summary
from dashboards.findings import NAMES

from argus.drill.scenarios import SCENARIOS
from argus.ruleset import rescale_expression
from dashboards_support import KERNELS, MINUTE, NATIVE, RANKS, Filled, filled

DASHBOARDS = load()
RUNS = [KERNELS, "hang", "checkpoint", "link-node", "jit", *sorted(SCENARIOS), NATIVE]
"""In the order in which they are asked: the first ones answer most."""
PAPER = 12_960
"""Ranks of the largest job that the ARGUS paper describes."""
MOST = 100_000
"""Series that no panel may ask for."""


@pytest.fixture(scope="module")
def prometheus(prometheus_binary: Path) -> Iterator[Filled]:
    with filled(prometheus_binary) as it:
        yield it


@dataclass
class Answer:
    """What the first run says that says anything.

    Attributes:
        run: The run.
        labels: Names of the labels of each series.
    """

    run: str
    labels: list[set[str]]


def ready(query: PanelQuery, values: dict[str, Any], times: Times) -> str:
    """PromQL whose times pass as fast as the pages: a minute in it is one page."""
    range_s = round(times.end - times.start, 3)

    def scaled(seconds: float) -> float:
        return seconds if seconds < MINUTE or seconds == range_s else seconds * times.scrape / MINUTE

    return rescale_expression(substitute(query.expr, values, times), scaled)


@pytest.fixture(scope="module")
def answers(prometheus: Filled) -> dict[PanelQuery, Answer]:
    times = prometheus.times
    found: dict[PanelQuery, Answer] = {}
    for dashboard in DASHBOARDS:
        for run in RUNS:
            left = [query for query in queries(dashboard) if query not in found]
            if not left:
                break
            given = {"run_id": run, **({"rank": "3"} if run == KERNELS else {})}
            values = resolve(prometheus.client, dashboard, given, times)
            for query in left:
                expr = ready(query, values, times)
                courses = prometheus.client.query_range(expr, times.start, times.end, times.scrape)
                if courses:
                    found[query] = Answer(run, [set(course.labels) for course in courses])
    return found


def test_every_query_returns_data_in_some_situation(answers: dict[PanelQuery, Answer]) -> None:
    asked = [query for dashboard in DASHBOARDS for query in queries(dashboard)]
    assert len(asked) > 100
    assert [str(query) for query in asked if query not in answers] == []


def test_series_have_the_labels_that_links_and_legends_need(answers: dict[PanelQuery, Answer]) -> None:
    for dashboard in DASHBOARDS:
        for panel in dashboard["panels"]:
            own = [q for q in answers if (q.dashboard, q.panel) == (dashboard["uid"], panel["title"])]
            pattern = r'__field\.labels\.(\w+)|__data\.fields\["(\w+)"\]'
            links = re.findall(pattern, str(panel.get("fieldConfig", "")))
            needed = {name for pair in links for name in pair if name}
            for target in panel.get("targets", ()):
                needed |= set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            have = {name for query in own for labels in answers[query].labels for name in labels}
            if panel["title"] == "Findings":  # which labels alerts have depends on the alert
                have |= set(NAMES.split(", "))
            assert needed <= have, panel["title"]


def test_native_and_classic_histograms_both_answer(prometheus: Filled) -> None:
    (dashboard,) = (dashboard for dashboard in DASHBOARDS if dashboard["uid"] == "argus-rank")
    (query,) = (query for query in queries(dashboard) if query.panel == "Phase occurrences: median")
    times = prometheus.times
    native, classic = query.expr.removeprefix("(").removesuffix(") >= 0").split(" or ")
    answered = {
        (run, kind): bool(
            prometheus.client.query_range(
                substitute(part, {"run_id": run, "rank": "3"}, times), times.start, times.end, times.scrape
            )
        )
        for run in (KERNELS, NATIVE)
        for kind, part in (("native", native), ("classic", classic))
    }
    assert answered == {
        (KERNELS, "native"): False, (KERNELS, "classic"): True,
        (NATIVE, "native"): True, (NATIVE, "classic"): False,
    }  # fmt: skip


def test_no_panel_asks_for_too_many_series(prometheus: Filled) -> None:
    """What a selector reads grows with the ranks, unless it names ranks or a communicator."""
    times = prometheus.times
    large = {}
    for run, ranks in RANKS.items():
        for dashboard in DASHBOARDS:
            values = resolve(prometheus.client, dashboard, {"run_id": run}, times)
            for query in queries(dashboard):
                for selector in re.findall(r"\bargus_\w+\{[^}]*\}", query.expr):
                    if re.search(r'rank="\$rank"|rank=~"\$shown"|group_id="\$group_id"|rank="0"', selector):
                        continue
                    expr = f"count({substitute(selector, {**values, 'instance': ['.*']}, times)})"
                    counts = prometheus.client.query_range(expr, times.start, times.end, times.scrape)
                    most = max((course.values.max() for course in counts), default=0.0)
                    of_all = ranks if "run_id=" in selector else sum(RANKS.values())
                    if most / of_all * PAPER > MOST:
                        large[selector] = most / of_all
    assert large == {}


def test_the_time_of_all_queries_can_be_taken(prometheus: Filled) -> None:
    span = prometheus.end - prometheus.start
    rows = measure(prometheus.client.url, {"run_id": KERNELS}, span=span, end=prometheus.end, rounds=1)
    said = summary(rows)
    assert said["queries"] == len(rows) == sum(1 for dashboard in DASHBOARDS for _ in queries(dashboard))
    assert set(said["seconds_by_dashboard"]) == {dashboard["uid"] for dashboard in DASHBOARDS}
