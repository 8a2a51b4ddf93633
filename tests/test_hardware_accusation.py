"""A rank that heat makes slow, from the stand-in for NVML to the shipped rules, in simulated time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pynvml

from argus.drill.conditions import COMPUTE
from argus.drill.faults import Between, SlowRanks
from argus.drill.fleet import anonymous
from argus.drill.player import Action, Player
from argus.drill.scenario import Drill
from argus.drill.source import PlayerSource
from argus.drill.timing import Profile
from argus.drill.topology import Topology
from argus.exporter.exposition.families import Point
from argus.exporter.sources import Rank
from argus.hardware import nvml
from argus.hardware.reading import Reading, Status, points
from argus.hardware.throttle import Throttle
from hardware_support import UUIDS, Nvml
from simulation import EPOCH_NS, Simulation

HOT, FRAIL = 5, 2
SINCE = 120.0
FULL_CLOCK, THERMAL = 1830, 1
EIGHT = Topology(dp=8, pp=1)


class Scraped:
    """The stand-in's GPUs, read when a scrape asks for them: simulated time has no threads."""

    present = True

    def __init__(self, now: Callable[[], float]) -> None:
        pynvml.nvmlInit()
        self._now = now
        self._throttles = [Throttle(longest_s=30.0) for _ in range(EIGHT.ranks)]

    def points(self, ranks: Iterable[Rank]) -> Iterator[Point]:
        found = []
        for gpu, handle in nvml.gpus("570"):
            throttled = self._throttles[gpu.index].values(handle, self._now())
            found.append(Status(gpu, 0.0, Reading(0.0, (*nvml.values(handle), *throttled)), True))
        return points(found, ranks)

    def check(self) -> Iterable[Point]:
        return ()


def make(**identity: Any) -> Any:
    return anonymous(**{**identity, "gpu_uuid": UUIDS[identity["rank"]]})


def test_heat_is_evidence_and_errors_elsewhere_accuse_nobody(promtool: str, tmp_path: Path) -> None:
    library = Nvml()
    library.reset(EIGHT.ranks)
    for gpu in range(EIGHT.ranks):
        library.set(
            gpu, clock__1=FULL_CLOCK, temperature__0=60, rows_corrected=0, **{f"violation__{THERMAL}": 0}
        )
    slow = Between(SlowRanks(EIGHT, (HOT,), COMPUTE, 1.8), SINCE)
    player = Player(Drill((slow,)), EIGHT, Profile(), "hot", seed=3, start=EPOCH_NS / 1e9, make=make)
    simulation = Simulation()
    node = simulation.node()
    node.source, node.gpus = PlayerSource(player), Scraped(lambda: simulation.now)

    def warm_up() -> None:
        passed = simulation.now - SINCE
        library.set(
            HOT,
            clock__1=int(FULL_CLOCK / 1.8),
            temperature__0=92,
            **{f"violation__{THERMAL}": int(passed * 4e8)},
        )
        simulation.at(simulation.now + 5, warm_up)

    simulation.at(SINCE, warm_up)
    simulation.at(SINCE, lambda: library.set(FRAIL, rows_corrected=1, rows_pending=1))
    _play(simulation, player.timeline())
    try:
        simulation.run(480.0)
    finally:
        library.reset(0)
        library.answer_init(Nvml.NO_DRIVER)
    said = simulation.judge(promtool, tmp_path)
    fired = said.ever("rank")
    by_rank = {one for one in fired if len(one) == 3}
    assert by_rank - {("ArgusComputeStraggler", "warning", str(HOT))} == {
        ("ArgusComputeStraggler", "critical", str(HOT)),
        ("ArgusGpuThrottled", "info", str(HOT)),
        ("ArgusGpuMemoryErrors", "info", str(FRAIL)),
    }
    assert {alert for alert, *_ in fired - by_rank} <= {"ArgusIterationRegression", "ArgusIterationJitter"}
    accused, evidence = (
        said.first("ArgusComputeStraggler", "critical"),
        said.first("ArgusGpuThrottled", "info"),
    )
    assert accused is not None
    assert evidence is not None
    assert evidence - accused <= 240


def _play(simulation: Simulation, timeline: Iterator[tuple[float, Action]]) -> None:
    following = next(timeline, None)
    if following is None:
        return
    time, action = following

    def act() -> None:
        action()
        _play(simulation, timeline)

    simulation.at(time - EPOCH_NS / 1e9, act)
