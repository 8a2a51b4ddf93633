"""The largest job of the ARGUS paper in front of one real Prometheus: 12,960 ranks on 1,620 nodes, all rules.

Prints one JSON object.  The job is ``argus drill masked-straggler`` (case 5 of
the paper); beside it run small jobs with the same fault at other times, from
which the time from fault to notification is measured.  The exporter's own code
renders every page that is scraped, for the very moment at which it is scraped;
this is done beforehand, for one machine can't do it in time.  Then Prometheus
is run twice, with the shipped rules and without.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
import time
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from argus import ruleset
from argus.drill.topology import Topology
from argus.drill.truth import judge
from argus.progress import Progress
from argus.prometheus import Alertmanager, Prometheus, WebhookReceiver
from benchmarks.scale.job import Job
from benchmarks.scale.measure import Observation, observe, rule_figures
from benchmarks.scale.pages import FORMATS, INTERVAL, Book, Target, render, targets
from benchmarks.scale.server import Server

PAPER = Topology(dp=1440, tp=1, pp=9, ep=32, micro_batches=8)
SMALL = Topology(dp=8, tp=1, pp=4, ep=4)
BUDGETS = {"rules_share_of_15s": 0.25, "peak_bytes": 6 << 30, "median_seconds": 60.0, "worst_seconds": 90.0}


def jobs_of(args: argparse.Namespace) -> list[Job]:
    """The large one first; the fault of each small one begins a little later than that of the one before."""
    large = Topology(
        dp=args.dp, tp=1, pp=args.pp, ep=args.ep, micro_batches=PAPER.micro_batches, per_node=PAPER.per_node
    )
    since = INTERVAL * args.healthy
    small = [
        Job(
            f"small{n:02}",
            "masked-straggler",
            SMALL,
            since + INTERVAL * (2 * n + 1) / (2 * args.beside),
            n + 1,
        )
        for n in range(args.beside)
    ]
    return [Job("paper", "masked-straggler", large, since), *small]


def config(port: int, everyone: list[Target], native: bool, alertmanager: str | None) -> str:
    """Prometheus's configuration."""
    lines = [
        "global: {scrape_interval: 15s, evaluation_interval: 15s}",
        "rule_files: [rules/*.yml]",
        "scrape_configs:",
        "- job_name: argus",
    ]
    if native:
        lines.append("  scrape_protocols: [PrometheusProto]")
    lines.append("  static_configs:")
    for number, target in enumerate(everyone):
        lines.append(
            f'  - {{targets: ["127.0.0.1:{port}"], '
            f'labels: {{__metrics_path__: "/{number}", instance: "{target.name}"}}}}'
        )
    if alertmanager:
        lines.append(f'alerting: {{alertmanagers: [{{static_configs: [{{targets: ["{alertmanager}"]}}]}}]}}')
    return "\n".join(lines) + "\n"


class Bench:
    """One measurement."""

    def __init__(self, args: argparse.Namespace, folder: Path) -> None:
        self.args, self.folder = args, folder
        self.jobs = jobs_of(args)
        self.targets = targets(self.jobs)
        self.native = args.format == "protobuf"
        self.progress = Progress(quiet=args.quiet)

    def prometheus(self, port: int, name: str, rules: bool, alertmanager: str | None = None) -> Prometheus:
        return Prometheus(
            config(port, self.targets, self.native, alertmanager),
            ruleset.render() if rules else {},
            binary=self.args.prometheus,
            directory=self.folder / name,
            native_histograms=self.native,
        )

    def run(self) -> dict[str, Any]:
        """All of it."""
        with Server(len(self.targets)) as server:
            book = self.rendered(self.scrape_times(server))
            result = self.with_rules(server, book)
            plain = self.without_rules(server, book) if not self.args.no_ingestion else None
        self.progress.clear()
        return self.report(result, plain, book)

    def scrape_times(self, server: Server) -> np.ndarray:
        """At which second of an interval this Prometheus scrapes each target: always the same."""
        self.progress("finding out when each node is scraped")
        with self.prometheus(server.port, "survey", rules=False):
            deadline = time.monotonic() + 4 * INTERVAL
            while np.isnan(seen := server.seen()).any():
                if time.monotonic() > deadline:
                    raise RuntimeError("Prometheus did not scrape every target within four intervals")
                time.sleep(1)
        times: np.ndarray = seen % INTERVAL
        return times

    def rendered(self, offsets: np.ndarray) -> Book:
        return render(
            self.jobs,
            offsets,
            self.args.scrapes,
            FORMATS[self.args.format],
            self.folder / "pages",
            self.progress,
        )

    def _begin(self, server: Server, book: Book) -> float:
        """Let the jobs begin; first some healthy minutes over and over, as often as was asked for."""
        begin = math.ceil((time.time() + 0.5) / INTERVAL) * INTERVAL
        again = range(1, max(2, min(self.args.healthy, book.scrapes)))
        past = [again[n % len(again)] for n in range(self.args.past)]
        server.show(book, begin, [*past, *range(book.scrapes)])
        return begin + INTERVAL * len(past)

    def with_rules(self, server: Server, book: Book) -> dict[str, Any]:
        """Judge the jobs."""
        with WebhookReceiver() as receiver:
            examples = resources.files("argus") / "examples"
            text = (
                (examples / "alertmanager.yml")
                .read_text()
                .replace("http://localhost:9080/argus", receiver.url)
            )
            with (
                Alertmanager(text, {"argus.tmpl": (examples / "argus.tmpl").read_text()}) as alertmanager,
                self.prometheus(server.port, "rules", True, alertmanager.address) as prometheus,
            ):
                prometheus.wait_for_alertmanager()
                begin = self._begin(server, book)
                self.progress("scraped, with all rules")
                seen = self._observe(server, prometheus, begin)
                reduce_scatter = self._reduce_scatter(prometheus)
            deliveries = receiver.deliveries
        verdicts = {}
        for job in self.jobs:
            fired = [
                dict(labels) for labels in seen.fired if dict(labels).get("run_id") in (job.run_id, None)
            ]
            verdicts[job.run_id] = judge(job.truth, fired)
        return {
            "seen": seen,
            "verdicts": verdicts,
            "accused": self._accused(seen),
            "reduce_scatter": reduce_scatter,
            "delays": {job.run_id: self._delay(job, deliveries, begin) for job in self.jobs},
        }

    def _observe(self, server: Server, prometheus: Prometheus, begin: float) -> Observation:
        processes = {"prometheus": prometheus.pid, "server": server.pid}
        seconds = INTERVAL * self.args.scrapes
        return observe(prometheus, processes, begin, seconds, min(45.0, seconds / 4))

    def without_rules(self, server: Server, book: Book) -> Observation:
        """The same scrapes, nothing else."""
        with self.prometheus(server.port, "plain", rules=False) as prometheus:
            begin = self._begin(server, book)
            self.progress("scraped, without rules")
            seconds = INTERVAL * max(4, self.args.scrapes // 2)
            processes = {"prometheus": prometheus.pid, "server": server.pid}
            return observe(prometheus, processes, begin, seconds, min(45.0, seconds / 2))

    def _accused(self, seen: Observation) -> dict[str, list[str]]:
        """Of the large job: by alert, severity and phase, the ranks that were named."""
        found: dict[str, list[str]] = {}
        for pairs in sorted(seen.fired):
            labels = dict(pairs)
            if labels.get("run_id") == self.jobs[0].run_id:
                key = " ".join(
                    labels[n] for n in ("alertname", "severity", "phase", "kernel_class") if n in labels
                )
                found.setdefault(key, []).append(labels.get("rank", "-"))
        return found

    def _delay(self, job: Job, deliveries: list[Any], begin: float) -> float | None:
        """Seconds from the fault until everything that must be said had been delivered."""
        missing = set(job.truth.must)
        for delivery in deliveries:
            for alert in delivery.payload["alerts"]:
                labels = alert["labels"]
                if alert["status"] == "firing" and labels.get("run_id") == job.run_id:
                    missing -= {claim for claim in missing if claim.matches(labels)}
            if not missing:
                return delivery.received - begin - job.since
        return None

    def _reduce_scatter(self, prometheus: Prometheus) -> dict[str, list[float]]:
        """By stage of the large job: mean reduce-scatter of the late expert group's lanes, and of all others.

        The last minute, median over ranks.
        """
        topology = self.jobs[0].topology
        members = self._late_lanes()
        last = '{run_id="paper", op="reduce_scatter"}[1m])'
        rows = prometheus.client.query(
            f"rate(argus_window_collective_seconds_sum{last} / rate(argus_window_collective_seconds_count{last}"
        )
        late: dict[int, list[float]] = {}
        others: dict[int, list[float]] = {}
        for row in rows:
            rank = int(row.labels["rank"])
            (late if topology.lane(rank) in members else others).setdefault(topology.stage(rank), []).append(
                row.value
            )
        return {
            f"pp{stage}": [
                round(statistics.median(late[stage]), 5),
                round(statistics.median(others[stage]), 5),
            ]
            for stage in sorted(late)
        }

    def _late_lanes(self) -> set[int]:
        topology = self.jobs[0].topology
        culprit = next(int(v) for claim in self.jobs[0].truth.must for k, v in claim.labels if k == "rank")
        return {topology.lane(rank) for rank in topology.members("ep", culprit)}

    def report(self, result: dict[str, Any], plain: Observation | None, book: Book) -> dict[str, Any]:
        seen: Observation = result["seen"]
        rules = rule_figures(seen)
        topology = self.jobs[0].topology
        ranks = sum(job.topology.ranks for job in self.jobs)
        delays = [delay for delay in result["delays"].values() if delay is not None]
        wrong = {run_id: str(v) for run_id, v in result["verdicts"].items() if not v.right}
        lane = sorted(self._late_lanes())
        shorter = all(late < other for late, other in result["reduce_scatter"].values())
        report: dict[str, Any] = {
            "prometheus": _version(self.args.prometheus),
            "format": self.args.format,
            "job": {
                "ranks": topology.ranks, "nodes": topology.nodes,
                "sizes": f"TP {topology.tp}, PP {topology.pp}, DP {topology.dp}, EP {topology.ep}",
                "small_jobs": len(self.jobs) - 1, "ranks_of_all": ranks, "targets": len(self.targets),
                "bytes_per_rank_and_scrape": round(float(book.index[:, -1, 1].sum()) / ranks),
            },
            "series": seen.series,
            "series_per_rank": round(seen.series / ranks, 1),
            "samples_per_second": round(seen.samples),
            "rules": rules,
            "cpu_cores": {"with_rules": round(seen.cpu["prometheus"], 3), "server_of_pages": round(seen.cpu["server"], 3)},
            "memory_bytes": {**seen.memory, "go_heap": seen.heap},
            "verdict": {
                "wrong": wrong,
                "accused": result["accused"],
                "late_lanes": f"{lane[0]}-{lane[-1]}",
                "reduce_scatter_seconds_late_and_others": result["reduce_scatter"],
                "reduce_scatter_shorter_everywhere": shorter,
            },
            "fault_to_notification_seconds": {
                "paper": _rounded(result["delays"]["paper"]),
                "jobs": len(delays),
                "median": _rounded(statistics.median(delays) if delays else None),
                "worst": _rounded(max(delays, default=None)),
            },
        }  # fmt: skip
        if plain is not None:
            report["cpu_cores"]["without_rules"] = round(plain.cpu["prometheus"], 3)
            report["cpu_cores"]["rules"] = round(seen.cpu["prometheus"] - plain.cpu["prometheus"], 3)
            report["memory_bytes"]["peak_without_rules"] = plain.memory["peak"]
        report["within_budget"] = {
            "rules": rules["share_of_15s"] <= BUDGETS["rules_share_of_15s"],
            "memory": seen.memory["peak"] <= BUDGETS["peak_bytes"],
            "verdict": not wrong and shorter,
            "notification": len(delays) == len(self.jobs)
            and statistics.median(delays) <= BUDGETS["median_seconds"]
            and max(delays) <= BUDGETS["worst_seconds"],
        }
        return report


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)


def _version(binary: Path | None) -> str:
    from argus.prometheus import binary_version, find_prometheus

    return ".".join(map(str, binary_version(binary or find_prometheus())))


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_scale", description=__doc__)
    parser.add_argument("--dp", type=int, default=PAPER.dp, help="data-parallel size (%(default)s)")
    parser.add_argument("--pp", type=int, default=PAPER.pp, help="pipeline stages (%(default)s)")
    parser.add_argument("--ep", type=int, default=PAPER.ep, help="expert-parallel size (%(default)s)")
    parser.add_argument("--beside", type=int, default=12, help="small jobs beside it (%(default)s)")
    parser.add_argument("--scrapes", type=int, default=16, help="of each node, one every 15 s (%(default)s)")
    parser.add_argument("--healthy", type=int, default=7, help="of these, before the fault (%(default)s)")
    parser.add_argument(
        "--past", type=int, default=0, help="scrapes before that, the healthy ones repeated (%(default)s)"
    )
    parser.add_argument(
        "--format", choices=sorted(FORMATS), default="text", help="what is scraped (%(default)s)"
    )
    parser.add_argument("--prometheus", type=Path, help="its binary ($ARGUS_PROMETHEUS, or on PATH)")
    parser.add_argument("--no-ingestion", action="store_true", help="leave the run without rules out")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave pages and data of Prometheus here")
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """0: everything is within its budget."""
    args = parse(argv)
    with tempfile.TemporaryDirectory(prefix="argus-scale-") as temporary:
        folder = args.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        report = Bench(args, folder).run()
    print(json.dumps(report, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
