"""A day in which nobody is at fault: 1,024 ranks, everything uneven that is uneven in real jobs.

    make bench-healthy      or      python -m benchmarks.healthy [--hours N] [--jobs N] [--output FILE]

Sequences of any length, experts of changing popularity, steps that take several times as long now and
then, checkpoints, evaluations, restarts, scrapes that are staggered over the interval.  The day is
played in simulated time, in parts of some hours; in each a job begins anew in a new Prometheus, promtool's,
which evaluates the shipped rules.  Nothing may be said of any rank, link, stage or run, except that the
work is uneven (ArgusWorkImbalance): it is, and that names no rank.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

from argus import ruleset
from argus.drill.conditions import Conditions
from argus.drill.faults import Moment, Stop
from argus.drill.scenario import Drill
from argus.drill.timing import Profile
from argus.drill.topology import Topology
from benchmarks.__main__ import RESULTS, machine
from benchmarks.drills.job import Job
from benchmarks.drills.promtool import deciding, evaluate
from benchmarks.drills.series import STAGGER, Recording

TOPOLOGY = Topology(dp=128, pp=8, ep=16)


@dataclass(frozen=True)
class Part:
    """Hours of the day: how many, seconds between scrapes, seconds of an iteration."""

    hours: float
    interval: float
    iteration: float


DAY = (
    Part(1, 15, 2), Part(2, 30, 10), Part(4, 60, 2), Part(1, 15, 10), Part(4, 60, 45),
    Part(2, 30, 2), Part(4, 60, 10), Part(2, 60, 45), Part(4, 60, 5),
)  # fmt: skip
assert sum(part.hours for part in DAY) == 24


@dataclass
class Uneven:
    """Work as it is: every micro-batch another length, every expert another popularity.

    Attributes:
        batches: Standard deviation of the logarithm of a micro-batch's work.
        common: The same of all work of an iteration.
        routing: The same of an expert's tokens from one iteration to the next.
        popularity: The same of what drifts, over ``memory`` iterations.
    """

    topology: Topology
    batches: float = 0.15
    common: float = 0.1
    routing: float = 0.1
    popularity: float = 0.04
    memory: float = 300.0
    _drift: Any = field(default=None, repr=False)

    def apply(self, conditions: Conditions, moment: Moment) -> None:
        topology, random = self.topology, moment.random
        width = topology.tp * topology.cp
        batches = self.batches * random.standard_normal((topology.micro_batches, topology.dp))
        common = self.common * random.standard_normal()
        conditions.work *= np.repeat(np.exp(batches + common), width, axis=1)
        shape = (topology.pp, topology.lanes)
        keep = 1 - 1 / self.memory
        before = random.standard_normal(shape) if self._drift is None else self._drift
        self._drift = keep * before + np.sqrt(1 - keep**2) * random.standard_normal(shape)
        experts = self.popularity * self._drift + self.routing * random.standard_normal(shape)
        conditions.compute["mlp"] *= np.exp(experts)


def stops(part: Part) -> tuple[Stop, ...]:
    """A checkpoint every half hour, an evaluation every two hours, a restart after six tenths."""
    end = part.hours * 3600
    found = [Stop(at, "pause", seconds=75.0) for at in np.arange(1500.0, end, 1800.0)]
    found += [Stop(at, "pause", seconds=300.0, pause="evaluation") for at in np.arange(2700.0, end, 7200.0)]
    return (*found, Stop(0.6 * end, "restart", seconds=90.0))


def play(part: Part, seed: int, topology: Topology, promtool: str) -> dict[str, Any]:
    """One part: what fired."""
    begin = time.monotonic()
    # Without host phases: promtool refuses queries of more than 10,000 samples.
    profile = Profile(iteration=part.iteration, noise=0.05, hiccups=0.001, loading=0.0, gaps=0.0)
    job = Job(Drill((Uneven(topology),), stops(part)), topology, profile, seed)
    seconds = part.hours * 3600
    recording = Recording(job, "day", part.interval)
    recording.run(seconds)
    rules = deciding(ruleset.render(part.interval))
    with tempfile.TemporaryDirectory(prefix="argus-healthy-") as folder:
        fired = evaluate(
            recording.lines(), rules, grid=part.interval / STAGGER, interval=part.interval, until=seconds,
            promtool=promtool, folder=Path(folder), timeout=7200.0,
        )  # fmt: skip
    said = Counter(
        dict(alert)["alertname"] for alert in {alert for alerts in fired.values() for alert in alerts}
    )
    return {
        "hours": part.hours,
        "scrape_interval_seconds": part.interval,
        "iteration_seconds": part.iteration,
        "iterations": job.played,
        "evaluations": int(seconds / part.interval),
        "restarts_and_pauses": len(stops(part)),
        "seed": seed,
        "alerts": dict(said),
        "seconds": round(time.monotonic() - begin),
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.healthy", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--hours", type=float, default=24.0, metavar="N", help="stop after so many (24)")
    parser.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="parts at once, each takes 5 to 7 GB of memory (1)"
    )
    parser.add_argument("--promtool", default=shutil.which("promtool"), help="its path (%(default)s)")
    parser.add_argument("--output", type=Path, default=RESULTS / "healthy.json", help="%(default)s")
    args = parser.parse_args()
    if not args.promtool:
        parser.error("promtool is not installed; it comes with Prometheus")
    os.nice(15)
    os.environ.setdefault("GOGC", "100")  # a part takes gigabytes
    before = np.cumsum([0.0, *(part.hours for part in DAY)])
    parts: list[dict[str, Any]] = []
    with ProcessPoolExecutor(args.jobs) as pool:
        playing = [
            pool.submit(play, part, seed, TOPOLOGY, args.promtool)
            for seed, part in enumerate(DAY)
            if before[seed] < args.hours
        ]
        for done in as_completed(playing):
            if done.exception() is not None:
                pool.shutdown(wait=False, cancel_futures=True)
            parts = sorted([*parts, done.result()], key=lambda one: one["seed"])
            print(json.dumps(done.result()), file=sys.stderr, flush=True)
            args.output.write_text(json.dumps(record(parts), indent=1) + "\n")
    return 0


def record(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The result with what it depends on."""
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part["alerts"])
    return {
        "benchmark": "healthy",
        "command": "make bench-healthy",
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        "machine": machine(),
        "result": {
            "ranks": TOPOLOGY.ranks,
            "hours": sum(part["hours"] for part in parts),
            "alerts": dict(total),
            "accusations": sum(count for name, count in total.items() if name != "ArgusWorkImbalance"),
            "parts": parts,
        },
    }


if __name__ == "__main__":
    sys.exit(main())
