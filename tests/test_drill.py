"""Every scenario of `argus drill`, judged by the shipped rules in simulated time; the command itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from argus.cli import main
from argus.drill.scenarios import SCENARIOS
from argus.drill.topology import Topology
from argus.drill.truth import Claim, Truth, judge
from drill_support import verdict

SMALL = Topology(dp=4, pp=2)
EXPERTS = Topology(dp=16, pp=2, ep=4)
SKEWED = Topology(dp=8, pp=1, ep=8)

# What is not named here is judged in its own test, or takes the sizes of the scenario itself.
DRILLS: dict[str, dict[str, object]] = {
    "healthy": {"topology": Topology(dp=4, tp=2, pp=2, ep=2), "seconds": 480.0},
    "straggler": {"topology": SMALL},
    "bubble": {},
    "link-ep": {"topology": EXPERTS, "seconds": 480.0},
    "link-dp": {"seconds": 480.0},
    "link-edge": {"seconds": 480.0},
    "link-node": {"seconds": 360.0},
    "link-and-straggler": {"topology": EXPERTS, "seconds": 480.0},
    "jit": {"topology": SMALL, "seconds": 720.0},
    "host-bound": {"topology": SMALL},
    "data-loading": {"topology": SMALL},
    "gc": {"topology": SMALL, "seconds": 1500.0},
    "checkpoint": {"topology": SMALL, "seconds": 720.0},
    "uneven-stages": {"topology": Topology(dp=2, pp=4)},
    "uneven-work": {"topology": Topology(dp=8, pp=1), "seconds": 900.0},
    "skewed-work": {"topology": SKEWED, "seconds": 480.0},
    "skewed-work-unknown": {"topology": SKEWED, "seconds": 480.0},
    "skewed-straggler": {"topology": SKEWED, "seconds": 480.0},
    "global-slowdown": {"topology": Topology(dp=4, pp=1), "since": 2000.0, "seconds": 2600.0},
    "common-speed": {"topology": Topology(dp=8, pp=1), "seconds": 900.0},
    "intermittent": {"topology": SMALL, "seconds": 720.0},
    "two-faults": {},
    "hang": {"topology": SMALL},
    "rank-down": {"topology": SMALL},
    "missing-ranks": {"topology": SMALL},
    "restart": {"topology": SMALL},
}


@pytest.mark.parametrize("name", DRILLS)
def test_scenario(promtool: str, tmp_path: Path, name: str) -> None:
    judgement, _ = verdict(name, promtool, tmp_path, **{"seconds": 600.0, **DRILLS[name]})
    assert judgement.right, str(judgement)


def test_the_masked_straggler(promtool: str, tmp_path: Path) -> None:
    """Two of an expert group of eight: only they are accused, in their mlp, and soon."""
    judgement, said = verdict(
        "masked-straggler", promtool, tmp_path, topology=Topology(dp=16, pp=3, ep=8), seconds=420.0
    )
    assert judgement.right, str(judgement)
    # Stage 2, the second expert group of lanes 8 to 15, from its middle on.
    accused = {(alert, *labels) for alert, _, *labels in said.ever("rank", "phase")}
    assert accused == {("ArgusComputeStraggler", rank, "mlp") for rank in ("44", "45")}
    assert (said.first("ArgusComputeStraggler", "critical") or 999) <= 120 + 90


@pytest.mark.parametrize("name", ["healthy", "straggler", "link-ep"])
def test_other_schedules_without_payloads_and_with_noise(promtool: str, tmp_path: Path, name: str) -> None:
    topology = EXPERTS if name == "link-ep" else Topology(dp=2, tp=2, pp=2, cp=2, chunks=2)
    judgement, _ = verdict(
        name, promtool, tmp_path, topology=topology, seconds=540.0, seed=11, bytes_known=False
    )
    assert judgement.right, str(judgement)


def test_every_scenario_is_judged() -> None:
    assert {*DRILLS, "masked-straggler"} == set(SCENARIOS)


def test_what_is_missing_and_what_is_false() -> None:
    truth = Truth(
        must=(Claim.of("A", rank=1),), may=(Claim("B"),), any_of=(Claim.of("C", x=1), Claim.of("C", x=2))
    )
    alerts = [{"alertname": "A", "rank": "1"}, {"alertname": "B"}, {"alertname": "C", "x": "2"}]
    assert judge(truth, alerts).right
    wrong = judge(truth, [{"alertname": "A", "rank": "2"}, {"alertname": "C", "x": "2"}])
    assert wrong.missing == [Claim.of("A", rank=1)]
    assert wrong.false == [{"alertname": "A", "rank": "2"}]
    assert str(judge(truth, alerts[:2])) == "missing C{x=1}"


def test_list_explains_every_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["drill", "--list"]) == 0
    said = capsys.readouterr().out
    for name, scenario in SCENARIOS.items():
        assert f"{name}\n" in said
        assert "Expected: " + scenario.expected.split()[0] in " ".join(said.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonsense"], "there is no scenario 'nonsense'"),
        ([], "which scenario?"),
        (["straggler", "--dp", "3", "--ep", "2"], "ep = 2 does not divide dp * cp = 3"),
        (["straggler", "--rank", "99"], "there is no rank 99; the job has 16"),
        (["link-ep", "--ep", "1"], "needs ep of at least 2"),
        (["bubble", "--dp", "1"], "needs pp and dp of at least 2"),
        (["link-edge", "--rank", "15"], "rank 15 has no next stage"),
        (["link-dp", "--tp", "1"], "too few communicators of this job are like the slow ones"),
        # 24 ranks on three nodes: all edges between nodes touch the middle one.
        (["link-node", "--dp", "3", "--tp", "1", "--pp", "8", "--per-node", "8"], "too few communicators"),
    ],
)
def test_what_can_not_be_had_is_refused(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["drill", *arguments]) == 2
    assert message in capsys.readouterr().err
