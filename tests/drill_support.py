"""Drills: in simulated time, the shipped rules over what real exporters would have exposed; and live."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path

import yaml

from argus import ruleset
from argus.demo.stack import alertmanager_config
from argus.drill.command import settings_of
from argus.drill.player import Action, Player
from argus.drill.scenarios import SCENARIOS
from argus.drill.source import PlayerSource
from argus.drill.timing import Profile
from argus.drill.topology import Topology
from argus.drill.truth import Judgement, Truth, judge
from argus.prometheus import Prometheus, WebhookReceiver
from exporter_support import until
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


@dataclass(frozen=True)
class Live:
    """A drill for ``argus drill`` to serve; what is None is the scenario's own. Seconds are the model's."""

    scenario: str
    topology: Topology | None = None
    factor: float | None = None
    since: float = 120.0
    iteration: float = 2.0

    @property
    def arguments(self) -> list[str]:
        """Of the command."""
        found = [self.scenario, "--since", f"{self.since:g}", "--iteration", f"{self.iteration:g}"]
        if self.topology is not None:
            for field in fields(Topology):
                found += [f"--{field.name.replace('_', '-')}", str(getattr(self.topology, field.name))]
        return found if self.factor is None else [*found, "--factor", f"{self.factor:g}"]

    @property
    def truth(self) -> Truth:
        """What must be said of it."""
        scenario = SCENARIOS[self.scenario]
        profile = Profile(iteration=self.iteration)
        topology = self.topology or scenario.topology
        return scenario.build(settings_of(scenario, topology, profile, None, self.factor, self.since)).truth


class Served:
    """An ``argus drill`` that serves its metrics, from its start on."""

    def __init__(self, arguments: Sequence[str]) -> None:
        command = [sys.executable, "-m", "argus.cli", "drill", *arguments]
        command += ["--listen", "127.0.0.1:0", "--quiet", "--seed", "5"]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self._killer = threading.Timer(600, self._process.kill)
        self._killer.start()
        self.said: list[str] = []

    def address(self) -> str:
        """HOST:PORT, once it serves."""
        assert self._process.stderr is not None
        while not self.said or "serving" not in self.said[-1]:
            self.said.append(self._process.stderr.readline())
            assert self.said[-1], self.said
        url = re.search(r"http://([^/\s]+)", self.said[-1])
        assert url is not None
        return url[1]

    def end(self) -> None:
        """As Ctrl-C does, twice: the run ends well, and nobody waits for a scrape that tells so."""
        self.stop()
        self._process.terminate()
        assert self.status() == 0

    def stop(self) -> None:
        """As Ctrl-C does: back when the run has ended."""
        self._process.terminate()
        assert self._process.stderr is not None
        while (line := self._process.stderr.readline()) and "has ended" not in line:
            pass

    def status(self) -> int:
        """Its exit status, once it is gone."""
        return self._process.wait(timeout=30)

    def kill(self) -> None:
        """However it stands."""
        self._killer.cancel()
        self._process.kill()
        self._process.wait()
        assert self._process.stderr is not None
        self._process.stderr.close()


@contextmanager
def served(*arguments: str) -> Iterator[tuple[str, list[str]]]:
    """A drill that serves its metrics: (HOST:PORT, what it said before)."""
    drill = Served(arguments)
    try:
        yield drill.address(), drill.said
        drill.end()
    finally:
        drill.kill()


@contextmanager
def served_together(drills: Mapping[str, Live], speed: float) -> Iterator[list[str]]:
    """Drills by name of their run, started at once: their addresses."""
    running: list[Served] = []
    try:
        for run_id, live in drills.items():
            running.append(Served([*live.arguments, "--run-id", run_id, "--speed", f"{speed:g}"]))
        yield [drill.address() for drill in running]
        for drill in running:
            drill.end()
    finally:
        for drill in running:
            drill.kill()


def alertmanager(webhook: WebhookReceiver, second: float) -> str:
    """Configuration: the shipped example's routes and inhibition, delivering here; how long its second is."""
    config = yaml.safe_load(alertmanager_config(webhook.url))
    for route in (config["route"], *config["route"]["routes"]):
        for key in ("group_wait", "group_interval"):
            if key in route:
                route[key] = ruleset.format_duration(ruleset.parse_duration(route[key]) * second)
    return str(yaml.safe_dump(config, sort_keys=False))


def let_pass(prometheus: Prometheus, evaluations: int) -> None:
    """Return when the rules have been evaluated so many times more."""
    seen: set[str] = set()

    def passed() -> bool:
        groups = prometheus.client.rules()
        seen.update(group["lastEvaluation"] for group in groups if group["name"] == "argus-l2-slow")
        return len(seen) > evaluations

    until(passed, 120, pause=0.2)


def ever_fired(prometheus: Prometheus) -> list[dict[str, str]]:
    """Labels of all that fired until now, evidence (severity info) left out."""
    query = 'count_over_time(ALERTS{alertstate="firing", severity!="info"}[1h])'
    return [
        {name: value for name, value in sample.labels.items() if name not in ("__name__", "alertstate")}
        for sample in prometheus.client.query(query)
    ]
