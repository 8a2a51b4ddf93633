"""A synchronous training job in virtual time, judged by the shipped rules.

Real segments are written on a virtual clock and read by the real exporter
library at each node's own scrape times; promtool evaluates the rendered rules
over what was scraped and tells which alerts fired when.
"""

from __future__ import annotations

import heapq
import itertools
import math
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from argus import _native, catalogue, ruleset
from argus.exporter.exposition.families import Family, Summary
from argus.exporter.exposition.text import escape
from argus.exporter.registry import GpuSource, Registry
from argus.exporter.selection import Series
from argus.exporter.sources import Rank as Found
from argus.exporter.sources import RankSource, Scan
from argus.segment.reader import read
from simulated_kernels import Kernels, Seconds

KINDS = {
    "data_loading": "host",
    "gpu_idle": "host",
    "jit_compile": "host",
    "forward": "compute",
    "backward": "compute",
    "optimizer": "compute",
    "grad_sync": "communication",
}
EPOCH_NS = 10**15
RETENTION_S = 600.0
"""How long a real exporter remembers dead and ended ranks."""

Work = Callable[[int, int, float], Mapping[str, float]]
"""(rank, iteration, start of the iteration in s) -> seconds of its own phases."""

KernelWork = Callable[[int, int, float], Seconds]
"""The same -> seconds of each kernel that it runs, by class."""

GROUPS = [group["name"] for text in ruleset.load().values() for group in yaml.safe_load(text)["groups"]]


def ns(seconds: float) -> int:
    return EPOCH_NS + round(seconds * 1e9)


class Rank:
    """One process: a segment, and the phases it has used."""

    def __init__(self, job: Job, rank: int, node: Node, attempt: int, now: float) -> None:
        self.rank, self.node = rank, node
        self.gone: float | None = None
        self.state = "running"
        self._last: bytes | None = None
        self.segment = _native.Segment(
            None, run_id=job.run_id, rank=rank, role=job.role(rank), node=node.name,
            world_size=job.world_size, attempt=attempt, created=ns(now),
        )  # fmt: skip
        self._phases: dict[str, int] = {}
        self._kernels: Kernels | None = None
        node.ranks.append(self)

    def phase(self, name: str) -> int:
        if name not in self._phases:
            self._phases[name] = self.segment.phase(name, KINDS[name])
        return self._phases[name]

    def iterate(self, number: int, end: float, wall: float, phases: Mapping[str, float]) -> None:
        for name, seconds in phases.items():
            self.segment.observe_phase(self.phase(name), round(seconds * 1e9))
        self.segment.end_iteration(number, ns(end), round(wall * 1e9))

    def launch(self, end: float, kernels: Seconds) -> None:
        """Kernels of the iteration that ended."""
        self._kernels = self._kernels or Kernels()
        self._kernels.iterate(end, kernels)

    def open(self, name: str, since: float) -> None:
        self.segment.open_phase(self.phase(name), ns(since))

    def end(self, now: float, state: str) -> None:
        """``failed`` stands for every death; ``ended`` is a clean end."""
        self._last = self.snapshot()
        self.segment.close(state)
        self.state, self.gone = state, now

    @property
    def alive(self) -> bool:
        return self.state == "running"

    def snapshot(self) -> bytes:
        """What an exporter finds, also after the end."""
        if self._last is not None:
            return self._last
        snapshot = self.segment.snapshot()
        return self._kernels.add_to(snapshot) if self._kernels else snapshot


@dataclass
class Node:
    """One exporter with its own scrape times."""

    name: str
    offset: float
    ranks: list[Rank] = field(default_factory=list)
    reachable: bool = True
    lost_scrapes: set[int] = field(default_factory=set)
    removed: bool = False
    source: RankSource | None = None
    """Where ranks come from that are not ``ranks``."""
    gpus: GpuSource | None = None

    def scrape(self, now: float) -> list[Family]:
        # An exporter forgets after its retention, and a dead rank that has come back here at once.
        current = {rank.rank: rank for rank in self.ranks if rank.alive}
        self.ranks = [
            rank
            for rank in self.ranks
            if rank.gone is None or (now - rank.gone < RETENTION_S and rank.rank not in current)
        ]
        source = self.source or self
        disabled = ["work", "tracer", "process", *(["collectives"] if source is self else [])]
        # As little as an exporter may serve is enough for every verdict.
        registry = Registry(
            source, version="simulated", disabled=disabled, gpus=self.gpus, series=Series.RULES
        )
        return registry.collect(ns(now))

    def scan(self, now_ns: int) -> Scan:
        """As a source of the registry."""
        scan = Scan()
        for rank in self.ranks:
            state = read(rank.snapshot(), now_ns)
            if rank.state == "ended":
                run_id = state.identity.run_id
                scan.ended[run_id] = scan.ended.get(run_id, 0) + 1
            else:
                scan.ranks.append(Found(state, rank.alive))
        return scan


class Job:
    """Iterations in which everybody waits for the slowest at the end."""

    def __init__(
        self,
        simulation: Simulation,
        work: Work,
        ranks: int,
        per_node: int,
        run_id: str,
        roles: int,
        kernels: KernelWork | None,
    ) -> None:
        self.simulation, self.work, self.world_size, self.run_id = simulation, work, ranks, run_id
        self.kernels = kernels
        self._per_role = math.ceil(ranks / roles)
        self.attempt, self.number = 0, 0
        self.stopped = False
        nodes = [simulation.node() for _ in range(math.ceil(ranks / per_node))]
        self.ranks = [Rank(self, rank, nodes[rank // per_node], 0, simulation.now) for rank in range(ranks)]
        self.resume()

    def role(self, rank: int) -> str:
        return f"pp{rank // self._per_role}"

    def resume(self) -> None:
        """Begin the next iteration now."""
        self.stopped = False
        start = self.simulation.now
        phases = {rank.rank: dict(self.work(rank.rank, self.number, start)) for rank in self.ranks}
        own = {rank: sum(parts.values()) for rank, parts in phases.items()}
        wall = max(own.values()) + 0.01
        members = tuple(self.ranks)

        def finish() -> None:
            if self.stopped or any(not rank.alive for rank in members):
                return
            for rank in members:
                waited = wall - own[rank.rank]
                rank.iterate(self.number, start + wall, wall, {**phases[rank.rank], "grad_sync": waited})
                if self.kernels is not None:
                    rank.launch(start + wall, self.kernels(rank.rank, self.number, start))
            self.number += 1
            self.resume()

        self.simulation.at(start + wall, finish)

    def hang(self, opened: Mapping[int, str]) -> None:
        """Stop for good, each rank in an open phase (grad_sync where none is given)."""
        self.stopped = True
        for rank in self.ranks:
            rank.open(opened.get(rank.rank, "grad_sync"), self.simulation.now)

    def restart(self, rank: int, node: Node | None = None) -> None:
        """A dead rank comes back, alone; the others have waited for it."""
        old = self.ranks[rank]
        self.ranks[rank] = Rank(self, rank, node or old.node, self.attempt, self.simulation.now)
        self.resume()

    def restart_all(self) -> None:
        """A new attempt of every rank, on the nodes where they were."""
        self.attempt += 1
        now = self.simulation.now
        self.ranks = [Rank(self, rank.rank, rank.node, self.attempt, now) for rank in self.ranks]
        self.resume()

    def end(self, state: str = "ended") -> None:
        self.stopped = True
        for rank in self.ranks:
            if rank.alive:
                rank.end(self.simulation.now, state)


class Simulation:
    """Virtual time, nodes and their scrapes.

    Args:
        scrape_interval: Seconds; the rules are rendered for it.
        grid: Scrape times are multiples of it; seconds.
    """

    def __init__(self, scrape_interval: float = 15.0, grid: float = 1.0) -> None:
        self.now = 0.0
        self.scrape_interval, self.grid = scrape_interval, grid
        self.nodes: list[Node] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._series: dict[str, dict[int, str]] = {}
        self._present: dict[str, set[str]] = {}

    def at(self, time: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time, next(self._order), action))

    def node(self) -> Node:
        """A new node; scrape offsets are spread over the interval."""
        number = len(self.nodes)
        steps = round(self.scrape_interval / self.grid)
        # A step coprime to the number of slots visits them all, far apart from node to node.
        stride = next(
            step for step in range(max(1, round(steps * 0.38)), steps + 2) if math.gcd(step, steps) == 1
        )
        node = Node(f"n{number}", (number * stride % steps) * self.grid)
        self.nodes.append(node)
        self._scrape_later(node, 0)
        return node

    def job(
        self,
        work: Work,
        ranks: int,
        *,
        per_node: int = 1,
        run_id: str = "r",
        roles: int = 1,
        kernels: KernelWork | None = None,
    ) -> Job:
        return Job(self, work, ranks, per_node, run_id, roles, kernels)

    def _scrape_later(self, node: Node, count: int) -> None:
        first = math.ceil((self.now - node.offset) / self.scrape_interval) if count == 0 else 0
        time = node.offset + self.scrape_interval * (first + count)
        self.at(time, lambda: self._scrape(node, first + count))

    def remove(self, node: Node) -> None:
        """Prometheus does not scrape it any more, as it does with a pod that has gone: its series end."""
        slot = round(self.now / self.grid)
        for series in (*self._present.pop(node.name, set()), self._up(node)):
            self._series[series][slot] = "stale"
        node.removed = True

    @staticmethod
    def _up(node: Node) -> str:
        return f'up{{job="argus", instance="{node.name}:9733"}}'

    def _scrape(self, node: Node, count: int) -> None:
        if node.removed:
            return
        slot = round(self.now / self.grid)
        answered = node.reachable and count not in node.lost_scrapes
        samples = self._samples(node) if answered else {}
        for series in self._present.get(node.name, set()) - samples.keys():
            self._series[series][slot] = "stale"
        for series, value in samples.items():
            self._series.setdefault(series, {})[slot] = value
        self._present[node.name] = set(samples)
        self._series.setdefault(self._up(node), {})[slot] = "1" if answered else "0"
        time = node.offset + self.scrape_interval * (count + 1)
        self.at(time, lambda: self._scrape(node, count + 1))

    def _samples(self, node: Node) -> dict[str, str]:
        place = [("job", "argus"), ("instance", f"{node.name}:9733")]
        found: dict[str, str] = {}

        def add(name: str, labels: Sequence[tuple[str, str]], value: float) -> None:
            text = ", ".join(f'{key}="{escape(text)}"' for key, text in labels)
            found[f"{name}{{{text}}}"] = repr(float(value))

        for family in node.scrape(self.now):
            metric = family.metric
            if metric in (catalogue.SEGMENTS, catalogue.BUILD_INFO):
                continue  # no rule reads them
            for values, value in family.series:
                labels = [*place, *zip(metric.labels, values, strict=True)]
                if isinstance(value, Summary):
                    for quantile, one in zip(metric.quantiles, value.quantiles, strict=True):
                        if one is not None:
                            add(metric.name, [*labels, ("quantile", quantile)], one)
                    if value.totals:
                        add(f"{metric.name}_sum", labels, value.sum)
                        add(f"{metric.name}_count", labels, value.count)
                elif isinstance(value, (int, float)):
                    add(metric.name, labels, value)
        return found

    def run(self, until: float) -> None:
        """Let virtual time pass."""
        while self._events and self._events[0][0] <= until:
            self.now, _, action = heapq.heappop(self._events)
            action()
        self.now = until

    def rules(self) -> dict[str, str]:
        """The shipped rules for this scrape interval."""
        return ruleset.render(self.scrape_interval)

    def judge(self, promtool: str, folder: Path, rules: Mapping[str, str] | None = None) -> Verdict:
        """Evaluate the rules over everything that was scraped, as often as they would be.

        Args:
            promtool: Its path.
            folder: For its files.
            rules: In the place of the shipped ones.
        """
        files = self.rules() if rules is None else rules
        for name, text in files.items():
            (folder / name).write_text(text)
        times = [t * self.scrape_interval for t in range(1, math.floor(self.now / self.scrape_interval) + 1)]
        query = 'ALERTS{alertstate="firing"}'
        document = {
            "rule_files": list(files),
            "evaluation_interval": f"{self.scrape_interval:.0f}s",
            "group_eval_order": GROUPS,
            "tests": [
                {
                    "interval": f"{self.grid:.0f}s",
                    "input_series": [
                        {"series": series, "values": self._values(samples)}
                        for series, samples in self._series.items()
                    ],
                    "promql_expr_test": [
                        {"expr": query, "eval_time": f"{t:.0f}s", "exp_samples": []} for t in times
                    ],
                }
            ],
        }
        file = folder / "test.yml"
        file.write_text(
            yaml.dump(document, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper), width=10**9)
        )
        done = subprocess.run([promtool, "test", "rules", file], capture_output=True, text=True, timeout=120)
        return Verdict.read(done.stdout + done.stderr)

    @staticmethod
    def _values(samples: Mapping[int, str]) -> str:
        tokens, position = [], 0
        for slot, value in sorted(samples.items()):
            if slot > position:
                tokens.append(f"_x{slot - position}")
            tokens.append(value)
            position = slot + 1
        return " ".join(tokens)


Alert = frozenset[tuple[str, str]]


@dataclass
class Verdict:
    """Firing alerts (labels without alertstate) by evaluation time in seconds."""

    firing: dict[float, set[Alert]]

    @classmethod
    def read(cls, output: str) -> Verdict:
        """From what promtool says of expectations that all were: nothing fires."""
        assert "FAILED" in output or "SUCCESS" in output, output
        firing: dict[float, set[Alert]] = {}
        for time, got in re.findall(r"time: (\S+),\s+exp:.*?\n\s+got: ?(.*?)\n", output):
            alerts = set()
            for text in re.findall(r"\{([^}]*)\}", got):
                labels = dict(re.findall(r'(\w+)="([^"]*)"', text))
                labels.pop("alertstate")
                alerts.add(frozenset(labels.items()))
            assert alerts or got in ("", "nil"), got
            firing[ruleset.parse_duration(time)] = alerts
        assert "FAILED" not in output or firing, output
        return cls(firing)

    def ever(self, *names: str) -> set[tuple[str, ...]]:
        """(alert, severity, and the values of ``names`` where it has them) of all that fired at any time."""
        return {self._key(alert, names) for alerts in self.firing.values() for alert in alerts}

    def at(self, time: float, *names: str) -> set[tuple[str, ...]]:
        return {self._key(alert, names) for alert in self.firing.get(time, ())}

    def first(self, alert: str, severity: str) -> float | None:
        """When it fired first."""
        wanted = {("alertname", alert), ("severity", severity)}
        return min(
            (t for t, alerts in self.firing.items() if any(wanted <= one for one in alerts)), default=None
        )

    @staticmethod
    def _key(alert: Alert, names: Sequence[str]) -> tuple[str, ...]:
        labels = dict(alert)
        return (labels["alertname"], labels["severity"], *(labels[name] for name in names if name in labels))
