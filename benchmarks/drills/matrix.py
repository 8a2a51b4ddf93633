"""Which drills `make bench-accuracy` plays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import cycle

from argus.drill.timing import Profile
from argus.drill.topology import Topology
from benchmarks.drills.batch import Run

NOISE = (0.01, 0.03, 0.06, 0.1)
"""Standard deviation of the logarithm of every step, of which an iteration has eight or more."""
HICCUPS = (0.0, 0.0, 0.001)
"""Share of steps that take several times as long."""
MOST_RANKS = 700
"""Beyond it jobs have no host phases: promtool refuses queries of more than 10,000 samples."""
RANKS_AT_ONCE = 250
"""Ranks of one promtool process, about; it evaluates faster over fewer."""

TOPOLOGIES = {
    "plain": (Topology(dp=8, pp=1), Topology(dp=2, tp=2, pp=2), Topology(dp=16, pp=1), Topology(dp=3, pp=1)),
    "pipelines": (
        Topology(dp=4, pp=2),
        Topology(dp=4, pp=4),
        Topology(dp=8, tp=2, pp=4),
        Topology(dp=4, tp=2, pp=2, cp=2, chunks=2),
        Topology(dp=16, tp=2, pp=4),
    ),
    "experts": (Topology(dp=16, pp=2, ep=4), Topology(dp=32, pp=2, ep=4), Topology(dp=32, pp=4, ep=8)),
    "replicas": (Topology(dp=4, tp=4, pp=2), Topology(dp=8, tp=4, pp=2)),
    "nodes": (Topology(dp=4, tp=4, pp=4, per_node=4),),
    "large": (Topology(dp=64, pp=4, ep=8), Topology(dp=64, tp=2, pp=4, ep=8), Topology(dp=1024, pp=1, ep=16)),
}
ANY = TOPOLOGIES["plain"][:3] + TOPOLOGIES["pipelines"] + TOPOLOGIES["experts"][:2]


@dataclass(frozen=True)
class Length:
    """Drills of one length: seconds of an iteration, until the fault, of the whole, between scrapes."""

    iteration: float
    since: float
    seconds: float
    interval: float = 15.0


SHORT = Length(0.4, 150.0, 750.0)
USUAL = Length(2.0, 150.0, 750.0)
MIDDLE = Length(10.0, 240.0, 1080.0)
LONG = Length(45.0, 450.0, 1800.0)
PAST = Length(2.0, 2100.0, 3000.0)
FAST_SCRAPES = Length(2.0, 150.0, 750.0, 5.0)
SLOW_SCRAPES = Length(2.0, 240.0, 1200.0, 30.0)
SLOWEST_SCRAPES = Length(2.0, 360.0, 1800.0, 60.0)


@dataclass(frozen=True)
class Row:
    """Drills of one scenario: every factor (None: its own) with so many of the topologies, in turn."""

    scenario: str
    length: Length
    topologies: tuple[Topology, ...]
    factors: tuple[float | None, ...] = (None,)
    each: int = 1


_STRAGGLER = (1.3, 1.5, 2.0, 3.0, 6.0)
_SKEWED = (Topology(dp=8, pp=1, ep=8), Topology(dp=16, pp=2, ep=8))
_PIPELINES, _EXPERTS = TOPOLOGIES["pipelines"], TOPOLOGIES["experts"]
ROWS = (
    Row("healthy", USUAL, ANY, each=8),
    Row("healthy", SHORT, TOPOLOGIES["plain"], each=4),
    Row("healthy", MIDDLE, ANY, each=6),
    Row("healthy", LONG, (*ANY, Topology(dp=2, pp=1)), each=10),
    Row("straggler", SHORT, TOPOLOGIES["plain"], _STRAGGLER, 2),
    Row("straggler", USUAL, ANY, _STRAGGLER, 5),
    Row("straggler", MIDDLE, ANY, _STRAGGLER, 3),
    Row("straggler", LONG, ANY, _STRAGGLER, 3),
    Row("straggler", FAST_SCRAPES, _PIPELINES, (1.4, 3.0), 2),
    Row("straggler", SLOW_SCRAPES, _PIPELINES, (1.4, 3.0), 2),
    Row("straggler", SLOWEST_SCRAPES, _PIPELINES, (1.4, 3.0), 2),
    Row("straggler", USUAL, TOPOLOGIES["large"], (1.4, 2.5)),
    Row("masked-straggler", USUAL, _EXPERTS, (1.5, 2.0, 5.7)),
    Row("masked-straggler", LONG, _EXPERTS, (2.0, 5.7)),
    Row("masked-straggler", USUAL, TOPOLOGIES["large"][2:], (5.7,)),
    Row("bubble", USUAL, (Topology(), Topology(dp=8, pp=4), Topology(dp=4, tp=2, pp=4)), (1.5, 1.9, 3.0), 2),
    Row("link-ep", USUAL, _EXPERTS, (2.0, 3.0, 6.0), 2),
    Row("link-ep", MIDDLE, _EXPERTS, (2.5, 5.0)),
    Row("link-ep", USUAL, TOPOLOGIES["large"], (3.0,)),
    Row("link-dp", USUAL, TOPOLOGIES["replicas"], (2.0, 3.0, 6.0)),
    Row("link-dp", MIDDLE, TOPOLOGIES["replicas"], (2.5, 5.0)),
    Row("link-edge", USUAL, (Topology(), Topology(dp=8, pp=4)), (4.0, 8.0), 2),
    Row("link-node", USUAL, TOPOLOGIES["nodes"], (3.0, 4.0, 8.0)),
    Row("link-and-straggler", USUAL, _EXPERTS, (2.0, 3.0), 2),
    Row("two-faults", USUAL, _PIPELINES[1:], (1.4, 2.0, 4.0), 2),
    Row("two-faults", LONG, _PIPELINES[1:], (2.0, 4.0)),
    Row("intermittent", USUAL, ANY, (2.0, 3.0), 2),
    Row("host-bound", USUAL, ANY, (30.0, 60.0, 120.0), 2),
    Row("host-bound", LONG, ANY, (60.0, 120.0)),
    Row("data-loading", USUAL, ANY, (0.1, 0.3, 1.0), 2),
    Row("data-loading", MIDDLE, ANY, (0.1, 0.5)),
    Row("jit", USUAL, _PIPELINES, (20.0, 40.0), 2),
    Row("gc", Length(2.0, 150.0, 1500.0), _PIPELINES, (1.2, 2.0), 2),
    Row("uneven-stages", USUAL, (Topology(dp=2, pp=4), *_PIPELINES[1:3]), (1.4, 1.6, 2.0)),
    Row("uneven-stages", LONG, _PIPELINES[1:3], (1.4, 2.0)),
    Row("uneven-work", Length(2.0, 150.0, 1500.0), (Topology(dp=8, pp=1), *_PIPELINES[2:3]), (2.0, 3.0)),
    Row("global-slowdown", PAST, (Topology(dp=4, pp=1), Topology(dp=4, pp=2)), (1.3, 2.0)),
    Row("common-speed", USUAL, ANY, (1.5, 2.0, 4.0), 2),
    Row("common-speed", MIDDLE, ANY, (2.0, 4.0), 2),
    Row("checkpoint", USUAL, _PIPELINES, each=4),
    Row("restart", USUAL, _PIPELINES, each=4),
    Row("hang", USUAL, _PIPELINES, each=5),
    Row("hang", LONG, _PIPELINES, each=2),
    Row("rank-down", USUAL, _PIPELINES, each=4),
    Row("missing-ranks", USUAL, _PIPELINES, each=3),
    Row("restart", USUAL, TOPOLOGIES["large"][:1]),
    Row("common-speed", USUAL, TOPOLOGIES["large"][1:2], (2.0,)),
    Row("skewed-work", USUAL, _SKEWED, (1.6, 2.0, 3.0)),
    Row("skewed-work-unknown", USUAL, _SKEWED, (1.6, 3.0)),
    Row("skewed-straggler", USUAL, _SKEWED, (1.6, 2.0, 3.0)),
    Row("skewed-straggler", LONG, _SKEWED, (2.0,)),
)


def drills() -> Iterator[tuple[Length, Run]]:
    """All of them; noise and seeds take turns."""
    noise, hiccups = cycle(NOISE), cycle(HICCUPS)
    seed = 0
    for row in ROWS:
        topologies = cycle(row.topologies)
        for factor in row.factors:
            for _ in range(row.each):
                seed += 1
                profile = Profile(iteration=row.length.iteration, noise=next(noise), hiccups=next(hiccups))
                topology = next(topologies)
                if row.length is SHORT:
                    topology = replace(topology, micro_batches=2)
                if topology.ranks > MOST_RANKS:
                    profile = replace(profile, loading=0.0, gaps=0.0)
                yield row.length, Run(row.scenario, topology, factor, None, row.length.since, seed, profile)


def batches() -> Iterator[tuple[Length, dict[str, Run]]]:
    """Drills that are judged together: of one length, with their run ids."""
    waiting: dict[Length, dict[str, Run]] = {}
    for number, (length, run) in enumerate(drills()):
        batch = waiting.setdefault(length, {})
        ranks = sum(other.topology.ranks for other in batch.values() if other.topology is not None)
        assert run.topology is not None
        if batch and ranks + run.topology.ranks > RANKS_AT_ONCE:
            yield length, waiting.pop(length)
            batch = waiting.setdefault(length, {})
        batch[f"drill-{number}"] = run
    yield from waiting.items()
