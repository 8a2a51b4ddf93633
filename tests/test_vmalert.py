"""The rules on VictoriaMetrics: as written for vmalert, and live beside Prometheus on the same data."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from argus import cli, ruleset
from argus.drill.topology import Topology
from argus.drill.truth import judge
from argus.prometheus import AlertReceiver, Prometheus
from argus.ruleset import shipped
from drill_support import Live, ever_fired, let_pass, served_together
from exporter_support import until
from victoria_support import forgetful, victoria_metrics, vmalert

SPEED = 7.5
"""The rules' 15 s become 2 s."""

CONFIG = """
global: {{scrape_interval: 2s, scrape_timeout: 2s, evaluation_interval: 2s}}
rule_files: [rules/*.yml]
remote_write:
  - url: http://{database}/api/v1/write
    queue_config: {{batch_send_deadline: 200ms}}
    # What was scraped, not what was recorded.
    write_relabel_configs: [{{source_labels: [__name__], regex: "argus_.*|up", action: keep}}]
scrape_configs: [{{job_name: argus, static_configs: [{{targets: {targets}}}]}}]
"""
DRILLS = {
    "healthy": Live("healthy", Topology(dp=4, pp=2)),
    "straggler": Live("straggler", Topology(dp=2, tp=2, pp=2), since=0.0),
    "link": Live("link-ep", Topology(dp=8, pp=2, ep=2), factor=9.0, since=0.0),
    "dead": Live("rank-down", Topology(dp=4, pp=1), since=15.0),
}


def groups_of(files: dict[str, str]) -> dict[str, dict[str, Any]]:
    return {group["name"]: group for text in files.values() for group in yaml.safe_load(text)["groups"]}


def recorded(group: dict[str, Any], name: str) -> str:
    (rule,) = [rule for rule in group["rules"] if rule.get("record") == name]
    return re.sub(r"\s+", " ", rule["expr"])


def test_a_chain_of_rules_reads_one_moment() -> None:
    slow = groups_of(ruleset.render_vmalert(ruleset.Options()))["argus-l2-slow"]
    # The first link needs raw series only.
    assert "offset" not in recorded(slow, "role_phase:argus_window_phase_seconds:median")
    # The second sees what the first recorded 15 s ago; another group's, however old, as it is by then.
    assert recorded(slow, "role_phase:argus_phase_reference_seconds:median") == (
        "(role_phase:argus_window_phase_seconds:median offset 15s"
        " and role_phase:argus_window_phase_seconds:count offset 15s > 2)"
        " or (2 * role_phase:argus_window_phase_seconds:q25 offset 15s"
        " - role_phase:argus_window_phase_seconds:median offset 15s"
        " and role_phase:argus_window_phase_seconds:count offset 15s == 2)"
    )
    # The fourth: a threshold that stands for 45 s ago, against the ranks of then.
    long = recorded(slow, "rank_phase:argus_phase_long:ratio")
    assert 'argus_window_phase_seconds{quantile="0.0", kind=~"compute|host"} offset 45s >' in long
    assert "role_phase:argus_phase_slow_seconds:threshold offset 15s)" in long
    assert "clamp_min(role_phase:argus_phase_reference_seconds:median offset 30s, 1e-6)" in long


def test_offsets_and_ranges_of_the_rules_stay() -> None:
    files = ruleset.render_vmalert(ruleset.Options())
    past = recorded(groups_of(files)["argus-l1-iteration"], "run:argus_iteration_good_seconds:past")
    # One day until ten minutes ago: of averages one link later, of what they average three links later.
    averages = past.index("run:argus_window_iteration_seconds:smoothed")
    assert "[1d] # threshold: regression_past offset 10m45s" in past[:averages]
    assert "offset 30m45s" in past[:averages]
    assert "[1d] # threshold: regression_past offset 10m15s" in past[averages:]
    for text in files.values():
        assert text.count("offset offset") == 0


def test_vmalert_gets_every_rule_and_no_field_that_it_does_not_know() -> None:
    options = ruleset.Options(scrape_interval=30.0)
    files, plain = ruleset.render_vmalert(options), ruleset.render_files(options)
    assert files.keys() == plain.keys()
    for name, text in files.items():
        for group, like in zip(
            yaml.safe_load(text)["groups"], yaml.safe_load(plain[name])["groups"], strict=True
        ):
            added = [rule for rule in group["rules"] if rule.get("record") == "alert:argus_condition:max"]
            own = [rule for rule in group["rules"] if rule not in added]
            assert [r.get("alert", r.get("record")) for r in own] == [
                r.get("alert", r.get("record")) for r in like["rules"]
            ]
            kept = [rule for rule in like["rules"] if "keep_firing_for" in rule]
            assert [rule["labels"] for rule in added] == [
                {"alertname": rule["alert"], "severity": rule["labels"]["severity"]} for rule in kept
            ]
            for rule in own:
                assert rule.keys() <= {"record", "alert", "expr", "for", "labels", "annotations"}
            assert group["interval"] == like["interval"]


@pytest.mark.parametrize("write", [ruleset.render_files, ruleset.render_vmalert])
def test_what_fires_goes_on_for_as_long(
    promtool: str, tmp_path: Path, write: Callable[[ruleset.Options], dict[str, str]]
) -> None:
    """As Prometheus's ``keep_firing_for`` does it, and as it is written out."""
    rules = yaml.safe_load(write(ruleset.Options())["argus-liveness.yml"])
    for group in rules["groups"]:
        group.pop("params", None)  # vmalert's own
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(rules))
    # Down from 1:00 to 3:00; down once more for too short a time.
    series = {"series": 'up{job="argus", instance="n:9733"}', "values": "1x3 0x8 1x11 0x2 1x20"}
    query = {"expr": 'count(ALERTS{alertname="ArgusExporterDown", alertstate="firing"})'}

    def expected(seconds: int, firing: bool) -> dict[str, Any]:
        samples = [{"labels": "{}", "value": 1}] if firing else []
        return {**query, "eval_time": f"{seconds}s", "exp_samples": samples}

    # It fires after a minute, and for a minute after 3:00, when it was last down.
    firing = {s: 120 <= s <= 240 for s in range(0, 601, 15)}
    test = {
        "interval": "15s",
        "input_series": [series],
        "promql_expr_test": [expected(s, f) for s, f in firing.items()],
    }
    file = tmp_path / "test.yml"
    file.write_text(
        yaml.safe_dump({"rule_files": ["rules.yml"], "evaluation_interval": "15s", "tests": [test]})
    )
    done = subprocess.run([promtool, "test", "rules", file], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_command_writes_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["rules", "--format", "vmalert", "--by", "cluster", "--output", str(tmp_path)]) == 0
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(shipped.load())
    text = (tmp_path / "argus-liveness.yml").read_text()
    assert "and on (run_id, cluster) last_over_time(ALERTS{" in text
    if shutil.which("vmalert"):
        done = subprocess.run(
            ["vmalert", "-dryRun", f"-rule={tmp_path}/argus-*.yml"],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
    capsys.readouterr()
    assert cli.main(["rules", "--format", "vmalert"]) == 0
    assert len(list(yaml.safe_load_all(capsys.readouterr().out))) == len(shipped.load())


def test_vmalert_says_what_prometheus_says(prometheus_binary: Path, tmp_path: Path) -> None:
    # Seconds, which no time scale reaches: a machine that is busy for so long is no hang.
    options = ruleset.Options(time_scale=1 / SPEED, thresholds={"hung_seconds": "900"})
    rules, written = ruleset.render_files(options), ruleset.render_vmalert(options)
    with (
        AlertReceiver() as receiver,
        victoria_metrics(tmp_path) as database,
        forgetful(database),
        vmalert(tmp_path, database.address, written, receiver.address, "200ms") as alerts,
        served_together(DRILLS, SPEED) as addresses,
        Prometheus(
            CONFIG.format(database=database.address, targets=json.dumps(addresses)),
            rules,
            binary=prometheus_binary,
        ) as prometheus,
    ):

        def told() -> list[dict[str, str]]:
            """By vmalert, until now; an alert's group is a label of its own there."""
            found = [alert["labels"] for alert in receiver.alerts()]
            return [{k: v for k, v in one.items() if k != "alertgroup"} for one in found]

        def critical() -> list[set[frozenset[tuple[str, str]]]]:
            """Of both; a warning takes its minutes, and one of them has it first."""
            both = (ever_fired(prometheus), told())
            return [
                {frozenset(one.items()) for one in fired if one["severity"] == "critical"} for fired in both
            ]

        def complete() -> bool:
            by_run = {run_id: [a for a in told() if a.get("run_id") == run_id] for run_id in DRILLS}
            return not any(live.truth.missing(by_run[run_id]) for run_id, live in DRILLS.items())

        until(lambda: complete() and len({*map(frozenset, critical())}) == 1, 300, pause=0.5)
        let_pass(prometheus, 4)
        prometheus_said, vmalert_said = critical()
        assert prometheus_said == vmalert_said
        for run_id, live in DRILLS.items():
            judgement = judge(live.truth, [one for one in told() if one.get("run_id") == run_id])
            assert judgement.false == [], f"{run_id}: {judgement}"
        rules_there = [
            rule for group in alerts.get("/api/v1/rules")["data"]["groups"] for rule in group["rules"]
        ]
        assert {rule["name"]: rule["lastError"] for rule in rules_there if rule["lastError"]} == {}
