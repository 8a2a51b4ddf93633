"""Faults near the borders, and faults that come and go: said once, with one set of labels."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from benchmarks.drills.batch import Verdict, play
from benchmarks.drills.job import Job

from argus.drill.conditions import COMPUTE, Conditions
from argus.drill.faults import Moment
from argus.drill.scenario import Drill
from argus.drill.timing import Profile
from argus.drill.topology import Topology
from argus.drill.truth import SYMPTOMS, Claim, Truth

JOB = Topology(dp=5, pp=1, micro_batches=4)
CULPRIT = 3
SINCE, END = 120.0, 1560.0
SECONDS = 1980.0


@dataclass(frozen=True)
class Wandering:
    """One rank's factor over time (seconds since the fault's begin)."""

    factor: Callable[[float], float]
    phases: tuple[str, ...] = COMPUTE

    def apply(self, conditions: Conditions, moment: Moment) -> None:
        if SINCE <= moment.now < END:
            for phase in self.phases:
                conditions.compute[phase][0, CULPRIT] *= self.factor(moment.now - SINCE)


def waves(middle: float, height: float, period: float) -> Callable[[float], float]:
    """To and fro between ``middle`` minus and plus ``height``, and a little faster on top."""
    return lambda t: middle + height * (math.sin(2 * math.pi * t / period) + 0.3 * math.sin(t))


def pulses(factor: float, on: float, off: float) -> Callable[[float], float]:
    return lambda t: factor if t % (on + off) < on else 1.0


FAULTS = {
    "around 1.2": Wandering(waves(1.26, 0.06, 190.0)),
    "around 1.5": Wandering(waves(1.52, 0.1, 150.0)),
    "around 1.5, slowly": Wandering(waves(1.5, 0.12, 700.0)),
    "comes and goes every minute": Wandering(pulses(2.5, 60.0, 60.0)),
    "comes and goes every four minutes": Wandering(pulses(2.5, 240.0, 240.0)),
    "comes and goes faster than scrapes": Wandering(pulses(2.5, 8.0, 8.0)),
    "steady": Wandering(lambda t: 2.5),
    "steady, in little": Wandering(lambda t: 2.5, ("optimizer",)),
}


@pytest.fixture(scope="module")
def verdicts(promtool: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Verdict]:
    """All of them as runs of one Prometheus, by name."""
    truth = Truth((Claim.of("ArgusComputeStraggler", rank=CULPRIT),), SYMPTOMS)
    profile = Profile(optimizer=0.06)
    jobs = {
        f"run-{number}": Job(Drill((fault,), truth=truth), JOB, profile, seed=number)
        for number, fault in enumerate(FAULTS.values())
    }
    found = play(jobs, SECONDS, promtool=promtool, folder=tmp_path_factory.mktemp("borders"))
    return dict(zip(FAULTS, found.values(), strict=True))


@pytest.mark.parametrize("name", FAULTS)
def test_nobody_else_is_accused_and_all_is_over_in_the_end(verdicts: dict[str, Verdict], name: str) -> None:
    verdict = verdicts[name]
    assert not verdict.judgement.false
    # keep_firing_for of five minutes, and the window's last slow iterations.
    last = [t for t, alerts in verdict.firing.items() if any("rank" in alert for alert in alerts)]
    assert max(last, default=0.0) <= END + 345


@pytest.mark.parametrize("name", [name for name in FAULTS if "scrapes" not in name])
def test_an_alert_begins_once_and_ends_once(verdicts: dict[str, Verdict], name: str) -> None:
    starts = verdicts[name].starts()
    about = {alert: n for alert, n in starts.items() if ("rank", str(CULPRIT)) in alert}
    assert about, "nothing was said"
    assert set(about.values()) == {1}, about


def test_severity_is_that_of_what_is_lost(verdicts: dict[str, Verdict]) -> None:
    def severities(name: str) -> Counter[tuple[str, str]]:
        return Counter((a["phase"], a["severity"]) for a in verdicts[name].ever if "phase" in a)

    # A slow device is critical in the phases that make up its slowness: the backward and the mlp, which is
    # a third of it.  The attention, a fifth of it, is not named, nor is the optimizer.
    steady = severities("steady")
    assert {phase for phase, _ in steady} == {"backward", "mlp"}
    assert {phase for phase, severity in steady if severity == "critical"} == {"backward", "mlp"}
    # The optimizer alone costs less than a tenth, however slow.
    assert set(severities("steady, in little")) == {("optimizer", "warning")}
    assert {severity for _, severity in severities("around 1.2")} == {"warning"}
