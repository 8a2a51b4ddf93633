"""Runs of the same name in two clusters, in one Prometheus."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from argus import cli, ruleset
from argus.ruleset import scope

OPTIONS = ruleset.Options(by=("cluster", "namespace"))


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("sum by (run_id) (a)", "sum by (run_id, c, n) (a)"),
        ("a / on(run_id, role) group_left (node) b", "a / on (run_id, role, c, n) group_left (node) b"),
        ("max by (instance) (up)", "max by (instance, c, n) (up)"),
        ("a and on (job, instance) b", "a and on (job, instance, c, n) b"),
        # Nothing that tells runs apart; nothing but text.
        ("a + on () group_left () b", "a + on () group_left () b"),
        ("sum by (role) (a{x=\"by (run_id)\"})", "sum by (role) (a{x=\"by (run_id)\"})"),
        ("a - ignoring (quantile) b", "a - ignoring (quantile) b"),
        ("position (run_id)", "position (run_id)"),
    ],
)  # fmt: skip
def test_clauses_of_runs_and_instances_are_widened(expression: str, expected: str) -> None:
    assert scope.widen(expression, ("c", "n")) == expected
    assert scope.widen(expression, ()) == expression


def test_queries_of_annotations_ask_for_the_alerts_own_cluster() -> None:
    template = (
        "Run {{ $labels.run_id }}: {{ $r := printf \"run_id=%q, rank=%q\" $labels.run_id $labels.rank -}}"
        '{{ with printf "count by (run_id) (a{run_id=%q} and on (run_id) b{%s})" $labels.run_id $r | query }}'
        "{{ . | first | value }}{{ end }} {{ $labels.run_id | urlquery }}"
    )  # fmt: skip
    assert scope.widen_template(template, ("c",)) == (
        "Run {{ $labels.run_id }}: "
        "{{ $r := printf \"c=%q, run_id=%q, rank=%q\" $labels.c $labels.run_id $labels.rank -}}"
        '{{ with printf "count by (run_id, c) (a{c=%q, run_id=%q} and on (run_id, c) b{%s})"'
        " $labels.c $labels.run_id $r | query }}"
        "{{ . | first | value }}{{ end }} {{ $labels.run_id | urlquery }}"
    )  # fmt: skip


def test_no_clause_and_no_query_of_the_rules_is_forgotten() -> None:
    text = ruleset.render_joined(OPTIONS)
    for clause in re.findall(r"\b(?:by|on) ?\(([^()]*)\)", text):
        labels = set(clause.split(", "))
        assert not labels & {"run_id", "instance"} or labels >= {"cluster", "namespace"}, clause
    for group in yaml.safe_load(text)["groups"]:
        for rule in group["rules"]:
            for annotation in rule.get("annotations", {}).values():
                for format_ in re.findall(r'printf ("(?:\\.|[^"\\])*")', annotation):
                    assert format_.count("run_id=%q") == format_.count("cluster=%q, namespace=%q, run_id=%q")
                for action in re.findall(r"\{\{.*?\}\}", annotation):
                    assert_as_many_values_as_places(action)


def assert_as_many_values_as_places(action: str) -> None:
    value = r"(?:\$[\w.]+|\([^()]*\))"
    match = re.search(rf'printf ("(?:\\.|[^"\\])*")((?: {value})*)', action)
    if match:
        given = len(re.findall(value, match[2])) + len(re.findall(r"\| printf", action))
        assert len(re.findall(r"%[qs.]", match[1])) == given, action


RANK = 'cluster="{c}", run_id="r", role="pp0", rank="{r}"'
PHASE = RANK + ', phase="mlp", kind="compute", quantile="{q}"'


def series(cluster: str, rank: int, seconds: float) -> dict[str, str]:
    """Input series of one rank, by name and labels."""
    of = RANK.format(c=cluster, r=rank)
    phases = [PHASE.format(c=cluster, r=rank, q=quantile) for quantile in ("0.0", "0.5")]
    return {
        **{f"argus_window_phase_seconds{{{phase}}}": f"{seconds}x40" for phase in phases},
        f'argus_window_iteration_seconds{{{of}, quantile="0.5"}}': "3x40",
        f'argus_rank_info{{{of}, node="{cluster}-node{rank}"}}': "1x40",
    }


def test_two_clusters_with_a_run_of_the_same_name_stay_apart(promtool: str, tmp_path: Path) -> None:
    """In the east one of four is slow; all of the west take as long as that one, and would hide it."""
    (tmp_path / "rules.yml").write_text(ruleset.render_joined(ruleset.Options(by=("cluster",))))
    seconds = {"east": [1, 1, 2, 1], "west": [2, 2, 2, 2]}
    inputs = [
        {"series": name, "values": values}
        for cluster, ranks in seconds.items()
        for rank, value in enumerate(ranks)
        for name, values in series(cluster, rank, value).items()
    ]
    test = {
        "input_series": inputs,
        "interval": "15s",
        "alert_rule_test": [
            {
                "eval_time": "1m",
                "alertname": "ArgusComputeStraggler",
                "exp_alerts": [
                    {
                        "exp_labels": {
                            "cluster": "east", "run_id": "r", "role": "pp0", "rank": "2", "phase": "mlp",
                            "severity": "critical",
                        },
                        "exp_annotations": {
                            "summary": "Rank 2 of run r is slow in phase mlp: 2.00 times its peers",
                            "description": "Rank 2 on node east-node2 (role pp0) needs 2.00 times "
                            "as long for phase mlp as its peers, even in its fastest recent "
                            "iteration: 2s against 1s. "
                            "It was compared with the ranks of its role, 4 with itself.",
                            "runbook_url": "https://runbooks.example/ArgusComputeStraggler.md",
                            "dashboard_url": "https://grafana.example/d/argus-rank?"
                            "var-run_id=r&var-role=pp0&var-rank=2",
                        },
                    }
                ],
            }
        ],
    }  # fmt: skip
    file = tmp_path / "test.yml"
    file.write_text(
        yaml.safe_dump({"rule_files": ["rules.yml"], "evaluation_interval": "15s", "tests": [test]})
    )
    done = subprocess.run([promtool, "test", "rules", str(file)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("labels", ["run_id", "cluster,cluster", "a-b", "__name__", "cluster,"])
def test_labels_that_can_not_be_are_refused(labels: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["rules", "--by", labels]) == 2
    assert "label" in capsys.readouterr().err


def test_the_command_takes_labels(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["rules", "--by", "cluster, namespace"]) == 0
    assert capsys.readouterr().out == ruleset.render_joined(OPTIONS)
