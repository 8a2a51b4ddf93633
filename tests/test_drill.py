"""Every scenario of `argus drill`, judged by the shipped rules in simulated time; the command itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.drills.batch import Run, play

from argus.cli import main
from argus.drill.scenarios import SCENARIOS
from argus.drill.topology import Topology
from argus.drill.truth import Claim, Judgement, Truth, judge
from drill_support import verdict

SMALL = Topology(dp=4, pp=2)
EXPERTS = Topology(dp=16, pp=2, ep=4)
INTERLEAVED = Topology(dp=2, tp=2, pp=2, cp=2, chunks=2)
SKEWED = Topology(dp=8, pp=1, ep=8)

# By seconds that are played together, as runs of one Prometheus.
TOGETHER: dict[float, dict[str, Run]] = {
    600.0: {
        "healthy": Run("healthy", Topology(dp=4, tp=2, pp=2, ep=2)),
        "healthy, interleaved": Run("healthy", INTERLEAVED, seed=11, bytes_known=False),
        "straggler": Run("straggler", SMALL),
        "straggler, interleaved": Run("straggler", INTERLEAVED, seed=11, bytes_known=False),
        "bubble": Run("bubble"),
        "link-ep": Run("link-ep", EXPERTS),
        "link-ep, payloads unknown": Run("link-ep", EXPERTS, seed=11, bytes_known=False),
        "link-dp": Run("link-dp"),
        "link-edge": Run("link-edge"),
        "link-node": Run("link-node"),
        "link-and-straggler": Run("link-and-straggler", EXPERTS),
        "host-bound": Run("host-bound", SMALL),
        "data-loading": Run("data-loading", SMALL),
        "uneven-stages": Run("uneven-stages", Topology(dp=2, pp=4)),
        "two-faults": Run("two-faults"),
        "skewed-work": Run("skewed-work", SKEWED),
        "skewed-work-unknown": Run("skewed-work-unknown", SKEWED),
        "skewed-straggler": Run("skewed-straggler", SKEWED),
        "hang": Run("hang", SMALL),
        "rank-down": Run("rank-down", SMALL),
        "missing-ranks": Run("missing-ranks", SMALL),
        "restart": Run("restart", SMALL),
    },
    900.0: {
        "jit": Run("jit", SMALL),
        "checkpoint": Run("checkpoint", SMALL),
        "uneven-work": Run("uneven-work", Topology(dp=8, pp=1)),
        "common-speed": Run("common-speed", Topology(dp=8, pp=1)),
        "intermittent": Run("intermittent", SMALL),
    },
    1500.0: {"gc": Run("gc", SMALL)},
    2600.0: {"global-slowdown": Run("global-slowdown", Topology(dp=4, pp=1), since=2000.0)},
}

# Through real segments and exporters, one by one: what the array of all ranks does not hold (GPUs).
ALONE: dict[str, dict[str, object]] = {
    "overheated": {"topology": SMALL, "seconds": 420.0},
}


@pytest.fixture(scope="module")
def judgements(promtool: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Judgement]:
    """Of all that are played together, by name."""
    found: dict[str, Judgement] = {}
    for seconds, runs in TOGETHER.items():
        # A name with a blank is no run_id anybody has.
        by_id = {name.replace(", ", "-").replace(" ", "-"): run for name, run in runs.items()}
        verdicts = play(by_id, seconds, promtool=promtool, folder=tmp_path_factory.mktemp("drills"))
        found.update(zip(runs, (verdict.judgement for verdict in verdicts.values()), strict=True))
    return found


@pytest.mark.parametrize("name", [name for runs in TOGETHER.values() for name in runs])
def test_scenario(judgements: dict[str, Judgement], name: str) -> None:
    assert judgements[name].right, str(judgements[name])


@pytest.mark.parametrize("name", ALONE)
def test_scenario_through_real_exporters(promtool: str, tmp_path: Path, name: str) -> None:
    judgement, _ = verdict(name, promtool, tmp_path, **ALONE[name])
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


def test_every_scenario_is_judged() -> None:
    together = {run.scenario for runs in TOGETHER.values() for run in runs.values()}
    assert {*together, *ALONE, "masked-straggler"} == set(SCENARIOS)


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
        ([], "name a scenario"),
        (["straggler", "--dp", "3", "--ep", "2"], "ep = 2 does not divide dp * cp = 3"),
        (["straggler", "--rank", "99"], "there is no rank 99; the job has 16"),
        (["straggler", "--factor", "1"], "--factor 1 is no fault; for straggler give more than 1"),
        (["straggler", "--dp", "1"], "no peers to compare it with"),
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


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        # In 40 minutes of real time, for the rules compare with the half hour before.
        (["global-slowdown"], ["the fault begins after 2400 s"]),
        (["global-slowdown", "--speed", "10"], ["the fault begins after 2400 s"]),
        (["global-slowdown", "--since", "60"], ["the fault begins after 60 s"]),
        (["rank-down", "--rank", "6"], [
            "the fault begins after 120 s", "must be accused: ArgusRankDown{rank=6}",
            "true as well, and may come: ArgusRunHung",
        ]),
    ],
)  # fmt: skip
def test_a_drill_says_when_and_what(
    arguments: list[str], lines: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("ARGUS_DIR", str(tmp_path))
    options = ["--segments-dir", str(tmp_path), "--duration", "0.1", "--quiet"]
    assert main(["drill", *arguments, *options]) == 0
    said = capsys.readouterr().err.splitlines()
    for line in lines:
        assert f"argus drill: {line}" in said
