"""`argus exporter --series rules`: nothing that a rule reads is left out, and what is served is read."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from argus import catalogue
from argus.catalogue import Metric
from argus.exporter.collectors.kernels import worth_a_window
from argus.exporter.exposition import protobuf, text
from argus.exporter.exposition.classic import Classic
from argus.exporter.exposition.families import Histogram, Point, Summary, group
from argus.exporter.registry import Registry
from argus.exporter.selection import Series, select
from argus.exporter.sources import MemorySource
from argus.ruleset import marks, shipped
from exporter_support import messages, segment

REPORT = Path(catalogue.__file__).parent / "report"
SECOND = 1_000_000_000

VALUES = {
    "kind": ("compute", "host", "communication", "mixed"),
    "phase": ("forward", "jit_compile", "checkpoint", "evaluation", "rendezvous", "optimizer"),
    "group": ("dp", "pp"),
    "kernel_class": ("gemm", "moe", "other", "communication_all_reduce", "others"),
    "clock": ("sm", "memory"),
    "reason": ("power", "thermal", "sync_boost", "board_limit", "reliability", "hw_thermal", "power_brake"),
    "severity": ("corrected", "uncorrected"),
    "lifetime": ("volatile", "aggregate"),
    "error": ("replay", "recovery", "crc_flit", "crc_data"),
    "xid": ("31", "48", "63", "64", "74", "92", "94", "95", "140"),
    "rank": ("0",),
}
"""Whatever rules tell apart; other labels have one value."""
OWN_VALUES = {
    "argus_phase_open_seconds": {"kind": (*VALUES["kind"], "pause")},
    "argus_collective_sequence": {"state": ("enqueued", "completed")},
    "argus_gpu_nvlink_links": {"state": ("active", "inactive")},
    "argus_window_work": {"phase": ("", "forward")},
}
"""The same of one metric."""


class Selector(NamedTuple):
    """A selector of PromQL: a metric's or a sample's name, and what its labels must be."""

    name: str
    matchers: tuple[tuple[str, str, str], ...]

    def matches(self, name: str, labels: dict[str, str]) -> bool:
        if name != self.name:
            return False
        for label, operator, wanted in self.matchers:
            pattern = wanted if operator.endswith("~") else re.escape(wanted)
            if bool(re.fullmatch(pattern, labels.get(label, ""))) != operator.startswith("="):
                return False
        return True


def selectors(query: str) -> Iterator[Selector]:
    """Those of ARGUS's own series; matchers with a template's value are left out."""
    for name, braces in re.findall(r"(?<![\w:])(argus_\w+)(?![\w:])(?:\{([^}]*)\})?", query):
        # The instance is a label of the scrape.
        yield Selector(name, tuple(each for each in matchers(braces) if each[0] != "instance"))


def matchers(braces: str) -> list[tuple[str, str, str]]:
    return re.findall(r'(\w+)(=~|!~|!=|=)"([^"]*)"', braces)


def rules() -> tuple[set[Selector], set[Selector]]:
    """Selectors of the shipped rules' expressions, and of their annotations' queries."""
    expressions: set[Selector] = set()
    annotations: set[Selector] = set()
    for one in (rule for each in shipped.all_groups() for rule in each["rules"]):
        expressions |= set(selectors(marks.strip(one["expr"])))
        for annotation in one.get("annotations", {}).values():
            for query in re.findall(r'printf "((?:\\.|[^"\\])*)"[^|}]*\| query', annotation):
                annotations |= set(selectors(query.replace('\\"', '"')))
    return expressions, annotations


def of_its_alert(selector: Selector) -> Selector:
    """What an accusation asks for: its own class of kernels, its own phase."""
    judged = {
        "argus_window_kernel_seconds": ("kernel_class", "!~", "communication_.*|other"),
        "argus_window_phase_seconds": ("kind", "=~", "compute|host"),
    }
    if selector.name not in judged or any(
        label == judged[selector.name][0] for label, *_ in selector.matchers
    ):
        return selector
    return selector._replace(matchers=(*selector.matchers, judged[selector.name]))


def report() -> set[Selector]:
    """What `argus report` asks for, by its source."""
    found: set[Selector] = set()
    for file in sorted(REPORT.glob("*.py")):
        for name, braces in re.findall(r"(?<![\w:])(argus_\w+)\{\{\{mine\}([^}]*)", file.read_text()):
            found.add(Selector(name, tuple(matchers(braces))))
    return {of_its_alert(each) for each in found}


LOOKED_AT = {
    # By argus doctor, on the exporter's own page.
    Selector(catalogue.BUILD_INFO.name, ()),
    Selector(catalogue.COLLECTOR_SUCCESS.name, ()),
    Selector(catalogue.SEGMENTS.name, ()),
    # By the runbook of a hang; there is none of it in any other job.
    Selector(catalogue.COLLECTIVE_SEQUENCE.name, (("state", "=", "completed"),)),
}


def everything(metric: Metric) -> Iterator[Point]:
    """Points of one metric with all labels that rules tell apart."""
    value: float | Histogram | Summary = 1.0
    if metric.type == "histogram":
        value = Histogram(np.ones(258, np.uint64), 1.0)
    elif metric.type == "summary":
        value = Summary(tuple(map(float, range(len(metric.quantiles)))), 1.0, 1)
    values = VALUES | OWN_VALUES.get(metric.name, {})
    for labels in product(*(values.get(name, ("x",)) for name in metric.labels)):
        yield Point(metric, labels, value)


def lines(points: Iterable[Point]) -> dict[str, str]:
    """Values by series, as the exporter writes them."""
    page = text.encode(group(points), classic=Classic.NONE).decode().splitlines()
    return dict(line.rsplit(" ", 1) for line in page if not line.startswith("#"))


def named(line: str) -> tuple[str, dict[str, str]]:
    return line.partition("{")[0], dict(re.findall(r'(\w+)="([^"]*)"', line))


def test_served_is_what_rules_reports_and_doctor_read() -> None:
    points = [point for metric in catalogue.METRICS for point in everything(metric)]
    every = lines(points)
    served = lines(select(points, Series.RULES))
    assert served.items() <= every.items()

    expressions, annotations = rules()
    assert len(expressions) > 50
    assert len(report()) >= 8
    needed = expressions | {of_its_alert(each) for each in annotations} | report() | LOOKED_AT
    read = {line for line in every if any(each.matches(*named(line)) for each in needed)}
    assert sorted(set(served) - read) == []
    assert sorted(read - set(served)) == []
    # Each selector found something: else this test would compare nothing.
    lost = [each for each in needed if not any(each.matches(*named(line)) for line in every)]
    assert lost == []


def test_gpus_that_no_rank_uses_are_left_out() -> None:
    points = [
        point._replace(labels=("", "", "", *point.labels[3:]))
        for metric in catalogue.METRICS
        if metric.name.startswith("argus_gpu_")
        for point in everything(metric)
    ]
    assert list(select(points, Series.RULES)) == []
    assert list(select(points, Series.ALL)) == points


def test_protobuf_holds_the_same_series() -> None:
    """Prometheus makes a sum and a count of every summary there: those that are not served are none."""
    points = [point for metric in catalogue.METRICS for point in everything(metric)]
    served = list(select(points, Series.RULES))
    found = 0
    for message in messages(protobuf.encode(group(served))):
        for metric in message.metric:
            found += len(metric.summary.quantile) + 2 if metric.HasField("summary") else 1
    assert found == len(lines(served))


def test_a_page_is_one_that_promtool_accepts(promtool: str) -> None:
    served = select([p for metric in catalogue.METRICS for p in everything(metric)], Series.RULES)
    page = text.encode(group(served), classic=Classic.NONE)
    done = subprocess.run([promtool, "check", "metrics"], input=page, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def standing(now: int, iterate: Callable[[int], int | None]) -> bool:
    """Whether sequence numbers are told of a rank that was created at 100 s."""
    rank = segment(created=100 * SECOND)
    sync = rank.collective("all_reduce", "dp", "dp-0", members=2, nodes=2)
    for number in range(5):
        end = iterate(number)
        if end is not None:
            rank.end_iteration(number, end * SECOND, SECOND)
    rank.sequence(sync, 5, 4)
    names = {family.metric.name for family in Registry(MemorySource([rank])).collect(now * SECOND)}
    assert "argus_collective_members" in names
    return "argus_collective_sequence" in names


@pytest.mark.parametrize(("now", "told"), [(160, False), (161, True)])
def test_sequence_numbers_before_the_first_iteration(now: int, told: bool) -> None:
    assert standing(now, lambda number: None) is told


@pytest.mark.parametrize(("now", "told"), [(205, False), (264, False), (265, True)])
def test_sequence_numbers_of_a_rank_that_stands_still(now: int, told: bool) -> None:
    assert standing(now, lambda number: 200 + number) is told


def test_classes_of_kernels_that_are_worth_a_window() -> None:
    assert worth_a_window(0.5, 100.0)
    assert not worth_a_window(0.49, 100.0)
    assert worth_a_window(0.0, 0.0)  # nobody knows yet
