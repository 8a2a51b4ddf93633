"""One measurement: pages for the very moments of their scrapes, Prometheus with rules, and without."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from argus import ruleset
from argus.drill.truth import Judgement, judge
from argus.exporter.selection import Series
from argus.progress import Progress
from argus.prometheus import Alertmanager, Delivery, Prometheus, WebhookReceiver
from argus.report.command import write
from argus.report.gather import gather
from argus.report.model import Axis
from benchmarks import panel_queries
from benchmarks.scale.job import Job
from benchmarks.scale.measure import Observation, observe
from benchmarks.scale.pages import FORMATS, Book, Target, render, targets
from benchmarks.scale.server import Server

_PATIENCE = 60.0
"""Seconds that a busy machine may take for anything."""


@dataclass(frozen=True)
class Plan:
    """What is measured.

    Attributes:
        jobs: The large one first.
        scrapes: Of each node.
        past: Scrapes before them, for which the first ``healthy`` are shown over and over.
        healthy: Scrapes before the first fault.
        interval: Seconds between scrapes; the rules are compressed as far as it is below 15 s.
        format: Of the pages, see ``FORMATS``.
        series: What exporters serve.
        ingestion: Whether it is run once more without rules.
        page: Where a report about the large job is written; None: nowhere.
        binary: Prometheus; None: the one that is found.
    """

    jobs: tuple[Job, ...]
    scrapes: int
    healthy: int
    past: int = 0
    interval: float = ruleset.NATIVE_INTERVAL
    format: str = "text"
    series: Series = Series.RULES
    ingestion: bool = True
    page: Path | None = None
    binary: Path | None = None


@dataclass
class Measured:
    """What came of it.

    Attributes:
        seen: With all rules.
        plain: Without; None where that was not asked for.
        verdicts: Of each job, by its name.
        delays: Of each job, seconds from its fault until all that must be said had been delivered.
        reduce_scatter: Of the large job, see ``_reduce_scatter``.
        page_bytes: All pages of the last scrape, compressed.
        panels: Times of all queries of the dashboards about the large job.
    """

    seen: Observation
    verdicts: dict[str, Judgement]
    delays: dict[str, float | None]
    reduce_scatter: dict[str, list[float]]
    page_bytes: int
    panels: dict[str, Any]
    plain: Observation | None = None


def config(port: int, everyone: list[Target], plan: Plan, alertmanager: str | None) -> str:
    """Prometheus's configuration: every target is a path of one port."""
    every = ruleset.format_duration(plan.interval)
    timeout = ruleset.format_duration(min(10.0, plan.interval))
    lines = [
        f"global: {{scrape_interval: {every}, scrape_timeout: {timeout}, evaluation_interval: {every}}}",
        "rule_files: [rules/*.yml]",
        "scrape_configs:",
        "- job_name: argus",
    ]
    if plan.format == "protobuf":
        lines.append("  scrape_protocols: [PrometheusProto]")
    lines.append("  static_configs:")
    for number, target in enumerate(everyone):
        labels = f'{{__metrics_path__: "/{number}", instance: "{target.name}"}}'
        lines.append(f'  - {{targets: ["127.0.0.1:{port}"], labels: {labels}}}')
    if alertmanager:
        lines.append(f'alerting: {{alertmanagers: [{{static_configs: [{{targets: ["{alertmanager}"]}}]}}]}}')
    return "\n".join(lines) + "\n"


def measure(plan: Plan, folder: Path, progress: Progress) -> Measured:
    """All of it.

    Args:
        plan: What is measured.
        folder: For pages and for the data of Prometheus.
        progress: Told how far it is.

    Raises:
        RuntimeError: This machine is too slow even for scraping.
    """
    bench = _Bench(plan, folder, progress)
    with Server(len(bench.targets)) as server:
        progress("finding out when each node is scraped")
        offsets = bench.scrape_times(server)
        book = render(
            plan.jobs, offsets, plan.scrapes, plan.interval, FORMATS[plan.format], plan.series,
            folder / "pages", progress,
        )  # fmt: skip
        measured = bench.with_rules(server, book)
        if plan.ingestion:
            measured.plain = bench.without_rules(server, book)
    progress.clear()
    return measured


class _Bench:
    def __init__(self, plan: Plan, folder: Path, progress: Progress) -> None:
        self._plan, self._folder, self._progress = plan, folder, progress
        self.targets = targets(plan.jobs)

    def _prometheus(self, port: int, name: str, rules: bool, alertmanager: str | None = None) -> Prometheus:
        return Prometheus(
            config(port, self.targets, self._plan, alertmanager),
            ruleset.render(time_scale=self._plan.interval / ruleset.NATIVE_INTERVAL) if rules else {},
            binary=self._plan.binary,
            directory=self._folder / name,
            native_histograms=self._plan.format == "protobuf",
        )

    def scrape_times(self, server: Server) -> np.ndarray:
        """At which second of an interval this Prometheus scrapes each target: always the same."""
        with self._prometheus(server.port, "survey", rules=False):
            deadline = time.monotonic() + 4 * self._plan.interval + _PATIENCE
            while np.isnan(seen := server.seen()).any():
                if time.monotonic() > deadline:
                    raise RuntimeError("Prometheus did not scrape every target, even once")
                time.sleep(self._plan.interval / 15)
        times: np.ndarray = seen % self._plan.interval
        return times

    def _begin(self, server: Server, book: Book) -> float:
        """Show the book from the next interval on; when its own first page is due (``time.time``)."""
        interval = self._plan.interval
        begin = math.ceil((time.time() + 0.5) / interval) * interval
        again = range(1, max(2, min(self._plan.healthy, book.scrapes)))
        past = [again[n % len(again)] for n in range(self._plan.past)]
        server.show(book, begin, [*past, *range(book.scrapes)])
        return begin + interval * len(past)

    def _observe(self, server: Server, prometheus: Prometheus, begin: float, scrapes: int) -> Observation:
        processes = {"prometheus": prometheus.pid, "server": server.pid}
        interval = self._plan.interval
        seconds = interval * scrapes
        # Series are created only once.
        return observe(prometheus, processes, begin, seconds, min(3 * interval, seconds / 4))

    def with_rules(self, server: Server, book: Book) -> Measured:
        """The jobs judged, and the alerts delivered."""
        examples = resources.files("argus") / "examples"
        text = (examples / "alertmanager.yml").read_text()
        template = (examples / "argus.tmpl").read_text()
        jobs = self._plan.jobs
        with WebhookReceiver() as receiver:
            text = text.replace("http://localhost:9080/argus", receiver.url)
            with (
                Alertmanager(text, {"argus.tmpl": template}) as alertmanager,
                self._prometheus(server.port, "rules", True, alertmanager.address) as prometheus,
            ):
                prometheus.wait_for_alertmanager()
                begin = self._begin(server, book)
                self._progress("scraped, with all rules")
                seen = self._observe(server, prometheus, begin, self._plan.scrapes)
                reduce_scatter = _reduce_scatter(prometheus, jobs[0])
                if self._plan.page is not None:
                    self._write_page(prometheus, self._plan.page)
                self._progress("asked by the dashboards")
                panels = self._panels(prometheus)
            deliveries = receiver.deliveries
        verdicts = {job.run_id: judge(job.truth, _of(job, seen)) for job in jobs}
        delays = {job.run_id: _delay(job, deliveries, begin) for job in jobs}
        return Measured(seen, verdicts, delays, reduce_scatter, int(book.index[:, -1, 1].sum()), panels)

    def _panels(self, prometheus: Prometheus) -> dict[str, Any]:
        """How long the dashboards' queries about the large job take, over all that it has done."""
        interval = self._plan.interval
        span = min(3600.0, interval * (self._plan.past + self._plan.scrapes))
        about = {"run_id": self._plan.jobs[0].run_id}
        rows = panel_queries.measure(prometheus.client.url, about, span=span, scrape=interval, rounds=1)
        return panel_queries.summary(rows)

    def _write_page(self, prometheus: Prometheus, page: Path) -> None:
        """What `argus report` makes of the large job."""
        interval, now = self._plan.interval, time.time()
        axis = Axis(now - interval * (self._plan.past + self._plan.scrapes), now, interval)
        run_id = self._plan.jobs[0].run_id
        write(gather(prometheus.client, run_id, axis, "the scale benchmark's Prometheus"), page)

    def without_rules(self, server: Server, book: Book) -> Observation:
        """The same scrapes, nothing else."""
        with self._prometheus(server.port, "plain", rules=False) as prometheus:
            begin = self._begin(server, book)
            self._progress("scraped, without rules")
            return self._observe(server, prometheus, begin, max(4, self._plan.scrapes // 2))


def _of(job: Job, seen: Observation) -> list[dict[str, str]]:
    """The alerts that fired for a job, and those without any."""
    fired = [dict(pairs) for pairs in seen.fired]
    return [labels for labels in fired if labels.get("run_id") in (job.run_id, None)]


def _delay(job: Job, deliveries: Iterable[Delivery], begin: float) -> float | None:
    missing = set(job.truth.must)
    for delivery in deliveries:
        for alert in delivery.payload["alerts"]:
            labels = alert["labels"]
            if alert["status"] == "firing" and labels.get("run_id") == job.run_id:
                missing -= {claim for claim in missing if claim.matches(labels)}
        if not missing:
            return delivery.received - begin - job.since / job.speed
    return None


def late_lanes(job: Job) -> set[int]:
    """Lanes of the culprits' expert group, which come late to every gradient exchange."""
    culprit = next(int(v) for claim in job.truth.must for k, v in claim.labels if k == "rank")
    return {job.topology.lane(rank) for rank in job.topology.members("ep", culprit)}


def _reduce_scatter(prometheus: Prometheus, job: Job) -> dict[str, list[float]]:
    """By stage: seconds of a reduce-scatter on late lanes and on all others, mean of the last window.

    The first of an iteration waits for everybody, which neither the fastest nor the typical one shows.
    """
    late = late_lanes(job)
    mine = f'run_id="{job.run_id}"'
    rows = prometheus.client.query(
        "last_over_time(argus_window_phase_seconds"
        f'{{{mine}, phase="reduce_scatter", kind="communication", quantile="0.5"}}[1m]) '
        "/ on (run_id, role, rank) sum by (run_id, role, rank) (last_over_time("
        f'argus_window_collective_occurrences{{{mine}, op="reduce_scatter"}}[1m]))'
    )
    found: dict[tuple[int, bool], list[float]] = {}
    for row in rows:
        rank = int(row.labels["rank"])
        place = (job.topology.stage(rank), job.topology.lane(rank) in late)
        found.setdefault(place, []).append(row.value)
    return {
        f"pp{stage}": [round(statistics.median(found[stage, is_late]), 5) for is_late in (True, False)]
        for stage in range(job.topology.pp)
        if (stage, True) in found and (stage, False) in found
    }
