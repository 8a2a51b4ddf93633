"""Every situation of `argus drill` at once, in a real Prometheus with the shipped rules, for the dashboards.

The drills are played in virtual time into pages, one for each nominal minute; Prometheus
scrapes one after the other.
"""

from __future__ import annotations

import sys
import threading
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from time import monotonic, time

import numpy as np
import yaml
from benchmarks.panel_queries import Times

from argus import catalogue, ruleset
from argus.drill.command import settings_of
from argus.drill.player import Action, Player
from argus.drill.scenarios import SCENARIOS
from argus.drill.source import PlayerSource
from argus.drill.timing import Profile
from argus.drill.topology import Topology
from argus.exporter.exposition import protobuf, text
from argus.exporter.exposition.classic import Classic
from argus.exporter.exposition.families import Point
from argus.exporter.registry import RANK_COLLECTORS, Registry
from argus.exporter.sources import Rank, RankSource, Scan, merge
from argus.hardware.reading import Gpu, Reading, Status, Value, points
from argus.prometheus import Client, Prometheus
from exporter_support import until
from simulation import EPOCH_NS, Simulation
from situations import healthy, slowed

PAGES = 20
MINUTE = 60.0
BEAT = 0.5
"""Seconds between scrapes where the machine is idle."""
HURRY = 0.55
"""The rules' time passes nearly twice as fast as the drills', so that half an hour fits into the pages."""

KINDS = {"drills": text.TEXT_TYPE, "classic": text.TEXT_TYPE, "native": protobuf.CONTENT_TYPE}
"""Targets and what they speak; two of them for both kinds of histograms."""
FOUR = Topology(dp=4, pp=1, per_node=2)
TOPOLOGIES = {
    "masked-straggler": Topology(dp=8, pp=2, ep=4, per_node=4),
    "bubble": Topology(dp=4, pp=2),
    "link-ep": Topology(dp=8, pp=2, ep=2),
    "link-dp": Topology(dp=2, tp=4, pp=1),
    "link-edge": Topology(dp=4, pp=2),
    "link-node": Topology(dp=2, tp=4, pp=4, per_node=4),
    "link-and-straggler": Topology(dp=8, pp=2, ep=2),
    "uneven-stages": Topology(dp=2, pp=4),
    "two-faults": Topology(dp=4, pp=2),
}
KERNELS = "kernels"
"""The run whose ranks have kernels, stacks and GPUs: those of the test harness, judged like any other."""
RANKS = {KERNELS: 4, "masked-straggler": 16}
"""Runs whose series are counted: one with devices, one with every kind of communicator."""
NATIVE = "native"
"""The run that is scraped with native histograms."""


class Devices:
    """GPUs of the run with kernels, in every kind of trouble; what NVML says is made up, the rest is real."""

    present = True

    def __init__(self) -> None:
        self.minutes = 0

    def points(self, ranks: list[Rank]) -> Iterator[Point]:
        mine = [rank for rank in ranks if rank.state.identity.run_id == KERNELS]
        return points([self._status(rank.state.identity.rank) for rank in mine], ranks)

    def check(self) -> Iterator[Point]:
        return iter(())

    def _status(self, rank: int) -> Status:
        hot, passed = rank == 3, self.minutes * MINUTE
        numbers = [
            (catalogue.GPU_CLOCK, ("sm",), 1.2e9 if hot else 1.9e9),
            (catalogue.GPU_CLOCK_MAX, ("sm",), 1.98e9),
            (catalogue.GPU_THROTTLE, ("hw_thermal",), 0.4 * passed if hot else 0.0),
            (catalogue.GPU_TEMPERATURE, ("gpu",), 92.0 if hot else 61.0),
            (catalogue.GPU_POWER, (), 650.0),
            (catalogue.GPU_POWER_LIMIT, (), 700.0),
            (catalogue.GPU_ENERGY, (), 650.0 * passed),
            (catalogue.GPU_ECC, ("corrected", "volatile"), float(self.minutes * hot)),
            (catalogue.GPU_REMAP_PENDING, (), float(hot)),
            (catalogue.GPU_REMAP_FAILED, (), float(hot)),
            (catalogue.GPU_PCIE_GENERATION, (), 3.0 if hot else 5.0),
            (catalogue.GPU_PCIE_GENERATION_MAX, (), 5.0),
            (catalogue.GPU_PCIE_LANES, (), 8.0 if hot else 16.0),
            (catalogue.GPU_PCIE_LANES_MAX, (), 16.0),
            (catalogue.GPU_PCIE_REPLAYS, (), float(self.minutes * hot)),
            (catalogue.GPU_NVLINKS, ("active",), 18.0),
            (catalogue.GPU_NVLINK_ERRORS, ("replay",), float(self.minutes * hot)),
            (catalogue.GPU_UTILIZATION, (), 0.97),
        ]
        reading = Reading(0.0, tuple(Value(*number) for number in numbers))
        xids = {79: (self.minutes, 30.0)} if hot else {}
        return Status(Gpu(rank, uuid(rank)), 1.0, reading, not hot or self.minutes < PAGES - 1, xids)


def uuid(rank: int) -> str:
    return f"GPU-{rank:08d}"


class Stage:
    """All runs in virtual time, page by page."""

    def __init__(self) -> None:
        self.players = [self._player(name) for name in SCENARIOS]
        self._timelines: list[tuple[Iterator[tuple[float, Action]], list[tuple[float, Action]]]] = [
            (player.timeline(), []) for player in self.players
        ]
        self._simulation = Simulation(MINUTE, 10.0)
        usual = slowed(slowed(healthy(scale=15.0), {1}, "forward", 1.5), {3}, "backward", 2.0, since=240.0)

        def work(rank: int, iteration: int, start: float) -> dict[str, float]:
            """Rank 1 has more to do, rank 3 takes longer for the same."""
            segment = self._simulation.nodes[0].ranks[rank].segment
            segment.work("tokens", "forward", 1500.0 if rank == 1 else 1000.0)
            return dict(usual(rank, iteration, start))

        self._simulation.job(work, 4, per_node=4, run_id=KERNELS, kernels=self._launched)
        self._simulation.job(usual, 4, per_node=4, run_id=NATIVE)
        kernels, native = self._simulation.nodes
        for rank in kernels.ranks:
            rank.segment.identify(gpu_uuid=uuid(rank.rank))
        self.devices = Devices()
        drills = _Sources(*map(PlayerSource, self.players))
        self._drills = Registry(drills, version="test")
        self._kernels = Registry(
            kernels, collectors={**RANK_COLLECTORS, "test": self._more},
            snapshots=self._snapshots, gpus=self.devices, version="test",
        )  # fmt: skip
        self._native = Registry(native)

    @staticmethod
    def _player(name: str) -> Player:
        scenario, topology = SCENARIOS[name], TOPOLOGIES.get(name, FOUR)
        since = 17.0 * MINUTE if name == "global-slowdown" else 4.0 * MINUTE
        settings = settings_of(scenario, topology, Profile(iteration=15.0), None, None, since)
        return Player(
            scenario.build(settings), topology, settings.profile, name, seed=1, start=EPOCH_NS / 1e9
        )

    @staticmethod
    def _launched(rank: int, iteration: int, start: float) -> dict[str, np.ndarray]:
        slow = 2.0 if rank == 3 and start >= 240.0 else 1.0
        return {name: np.full(40, 0.01 * slow) for name in ("gemm", "attention")}

    def _more(self, rank: Rank) -> Iterator[Point]:
        """What only a live rank has: sources that lose events and cost time, samples of stacks."""
        who = rank.state.identity
        if who.run_id != KERNELS:
            return
        labels = (who.run_id, who.role, str(who.rank), "phases")
        minutes = self.devices.minutes
        yield Point(catalogue.TRACER_ENABLED, labels, int(who.rank != 3 or minutes < PAGES // 2))
        yield Point(catalogue.TRACER_DROPPED, labels, minutes * 10)
        yield Point(catalogue.TRACER_EVENTS, labels, minutes * 100)
        yield Point(catalogue.TRACER_COST, labels, minutes * 0.06)
        yield Point(catalogue.TRACER_AGE, labels, 1.0)
        for category, share in (("training", 0.7), ("gc", 0.3)):
            yield Point(catalogue.CPU_SAMPLES, (*labels[:3], category), round(minutes * 1200 * share))

    def _snapshots(self) -> Iterator[Point]:
        yield Point(catalogue.SNAPSHOTS, ("written",), self.devices.minutes)
        yield Point(catalogue.SNAPSHOTS_KEPT, (), 3)
        yield Point(catalogue.SNAPSHOTS_BYTES, (), 4096)

    def __iter__(self) -> Iterator[tuple[bytes, bytes, bytes]]:
        """What the targets of ``KINDS`` show, every nominal minute."""
        for minute in range(1, PAGES + 1):
            seconds = minute * MINUTE
            self.devices.minutes = minute
            self._play(EPOCH_NS / 1e9 + seconds)
            self._simulation.run(seconds)
            now = EPOCH_NS + round(seconds * 1e9)
            yield (
                text.encode(self._drills.collect(now)),
                text.encode(self._kernels.collect(now), classic=Classic.ALL),
                protobuf.encode(self._native.collect(now)),
            )

    def _play(self, until: float) -> None:
        for timeline, waiting in self._timelines:
            while True:
                if not waiting and (following := next(timeline, None)) is not None:
                    waiting.append(following)
                if not waiting or waiting[0][0] > until:
                    break
                waiting.pop()[1]()


class _Sources:
    """Several sources as one."""

    def __init__(self, *sources: RankSource) -> None:
        self._sources = sources

    def scan(self, now_ns: int) -> Scan:
        return merge(source.scan(now_ns) for source in self._sources)


@dataclass
class Filled:
    """A Prometheus that has seen all pages.

    Attributes:
        client: Asks it.
        start, end: When the first and the last page were shown (Unix seconds).
        interval: Seconds between scrapes.
    """

    client: Client
    start: float
    end: float
    interval: float

    @property
    def times(self) -> Times:
        """The whole time range."""
        return Times(self.start, self.end, self.interval)

    def complete(self) -> bool:
        """Whether every page was scraped."""
        courses = self.client.query_range("up", self.start, self.end, self.interval)
        return all(course.values.min() == 1 for course in courses)


class _Server(ThreadingHTTPServer):
    """Silent about connections that Prometheus gives up, as it does at a reload."""

    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: object, client_address: object) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


@contextmanager
def _served(pages: list[dict[str, bytes]]) -> Iterator[tuple[str, Counter[str]]]:
    """The pages, one with each scrape, under /drills and so on: (HOST:PORT, scrapes by target)."""
    scrapes: Counter[str] = Counter()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            kind = self.path.strip("/")
            page = zlib.decompress(pages[min(scrapes[kind], len(pages) - 1)][kind])
            scrapes[kind] += 1
            self.send_response(200)
            self.send_header("Content-Type", KINDS[kind])
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = _Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}", scrapes
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def filled(binary: Path) -> Iterator[Filled]:
    """A Prometheus with all situations, its rules evaluated on the last page."""
    begin = monotonic()
    pages = [
        {kind: zlib.compress(page, 1) for kind, page in zip(KINDS, shown, strict=True)} for shown in Stage()
    ]
    # A busy machine gets more time, and again more where a scrape failed nevertheless.
    beat = max(BEAT, 1.5 * (monotonic() - begin) / PAGES)
    for interval in (beat, 2 * beat, 4 * beat):
        with _shown(pages, binary, interval) as prometheus:
            if prometheus.complete() or interval == 4 * beat:
                yield prometheus
                return


@contextmanager
def _shown(pages: list[dict[str, bytes]], binary: Path, interval: float) -> Iterator[Filled]:
    with _served(pages) as (address, scrapes):
        every = f"{interval * 1000:.0f}ms"
        config = {
            "global": {"scrape_interval": every, "scrape_timeout": every, "evaluation_interval": every},
            "rule_files": ["rules/*.yml"],
        }
        targets = [_target(f"argus-{kind}", address, f"/{kind}") for kind in KINDS]
        # Iterations of 15 s as short ones: averages of half an hour would need an hour of pages.
        options = ruleset.Options(
            scrape_interval=MINUTE,
            time_scale=HURRY * interval / MINUTE,
            thresholds={"regression_long": "60"},
        )
        rules = ruleset.render_files(options)
        with Prometheus(
            yaml.safe_dump(config), rules, binary=binary, native_histograms=True,
            flags=[f"--query.lookback-delta={6 * interval:.0f}s"],
        ) as prometheus:  # fmt: skip
            # Prometheus itself is a target, too, and its port was not known before.
            targets.append(_target("prometheus", prometheus.address, "/metrics"))
            start = time()
            prometheus.reload(yaml.safe_dump({**config, "scrape_configs": targets}))
            until(lambda: all(scrapes[kind] >= PAGES for kind in KINDS), 5 * PAGES * interval)
            shown = time()

            def evaluated() -> bool:
                query = "min(prometheus_rule_group_last_evaluation_timestamp_seconds)"
                return any(sample.value > shown for sample in prometheus.client.query(query))

            until(evaluated, 60 * interval)
            end = time()
            prometheus.reload(yaml.safe_dump({"global": config["global"]}))  # and now rest
            yield Filled(prometheus.client, start, end, interval)


def _target(job: str, address: str, path: str) -> dict[str, object]:
    return {"job_name": job, "metrics_path": path, "static_configs": [{"targets": [address]}]}
