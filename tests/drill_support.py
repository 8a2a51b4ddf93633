"""Drills: in simulated time, the shipped rules over what real exporters would have exposed; and live."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from argus.drill.command import settings_of
from argus.drill.player import Action, Player
from argus.drill.scenarios import SCENARIOS
from argus.drill.source import PlayerSource
from argus.drill.timing import Profile
from argus.drill.topology import Topology
from argus.drill.truth import Judgement, judge
from simulation import EPOCH_NS, Simulation, Verdict

RUN = "drill"


def simulate(
    name: str,
    topology: Topology | None = None,
    *,
    seconds: float = 900.0,
    since: float = 120.0,
    factor: float | None = None,
    rank: int | None = None,
    seed: int = 1,
    profile: Profile | None = None,
    bytes_known: bool = True,
    scrape_interval: float = 15.0,
) -> tuple[Simulation, Player]:
    """Run a scenario for so many seconds."""
    scenario = SCENARIOS[name]
    topology = topology or scenario.topology
    settings = settings_of(scenario, topology, profile or Profile(), rank, factor, since, bytes_known)
    player = Player(
        scenario.build(settings), topology, settings.profile, RUN,
        seed=seed, start=EPOCH_NS / 1e9, bytes_known=bytes_known,
    )  # fmt: skip
    simulation = Simulation(scrape_interval)
    for number in range(topology.nodes):
        node = simulation.node()
        node.source = PlayerSource(player, number)
        node.gpus = player.gpus.of(topology.ranks_of_node(number))
    timeline = player.timeline()

    def play(timeline: Iterator[tuple[float, Action]]) -> None:
        following = next(timeline, None)
        if following is None:
            return
        time, action = following

        def act() -> None:
            action()
            play(timeline)

        simulation.at(time - EPOCH_NS / 1e9, act)

    play(timeline)
    simulation.run(seconds)
    return simulation, player


def verdict(name: str, promtool: str, folder: Path, **options: object) -> tuple[Judgement, Verdict]:
    """Judge a scenario, see :func:`simulate`."""
    simulation, player = simulate(name, **options)  # type: ignore[arg-type]
    said = simulation.judge(promtool, folder)
    fired = [dict(alert) for alert in {alert for alerts in said.firing.values() for alert in alerts}]
    return judge(player.truth, fired), said


@contextmanager
def served(*arguments: str) -> Iterator[tuple[str, list[str]]]:
    """A drill that serves its metrics: (HOST:PORT, what it said before)."""
    command = [sys.executable, "-m", "argus.cli", "drill", *arguments]
    command += ["--listen", "127.0.0.1:0", "--quiet", "--seed", "5"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        killer = threading.Timer(120, process.kill)
        killer.start()
        try:
            said: list[str] = []
            while not said or "serving" not in said[-1]:
                said.append(process.stderr.readline())
                assert said[-1], said
            url = re.search(r"http://([^/\s]+)", said[-1])
            assert url is not None
            yield url[1], said
            process.terminate()
            assert process.wait(timeout=30) == 0
        finally:
            killer.cancel()
            process.kill()
