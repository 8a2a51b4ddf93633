"""Rules divided between shards and a global Prometheus."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from argus import cli, ruleset
from argus.prometheus import Prometheus
from argus.ruleset import parts, shipped
from drill_support import served
from exporter_support import until

GROUPS = shipped.all_groups()
RECORDED = {rule["record"] for group in GROUPS for rule in group["rules"] if "record" in rule}
SPEED = 15
"""The rules' 15 s become 1 s."""


def rules(part: str | None) -> list[dict[str, Any]]:
    return [rule for group in parts.select(GROUPS, part) for rule in group["rules"]]


def test_every_rule_has_a_part() -> None:
    names = {part: [parts.name_of(rule) for rule in rules(part)] for part in parts.PARTS}
    assert {*names["shard"], *names["global"]} == {parts.name_of(rule) for rule in rules(None)}
    twice = set(names["shard"]) & set(names["global"])
    linked = {parts.name_of(r) for g in GROUPS if g["name"] in parts.BOTH_GROUPS for r in g["rules"]}
    assert twice == linked | set(parts.BOTH)
    # A name that stands for nothing would divide nothing.
    known = {parts.name_of(rule) for rule in rules(None)}
    assert {*parts.SHARD, *parts.GLOBAL, *parts.BOTH} <= known
    assert {*parts.GLOBAL_GROUPS, *parts.BOTH_GROUPS} <= {group["name"] for group in GROUPS}


def test_a_shard_records_what_its_rules_read() -> None:
    own = {parts.name_of(rule) for rule in rules("shard")}
    for rule in rules("shard"):
        assert not (parts.reads({"expr": rule["expr"]}) & RECORDED) - own, parts.name_of(rule)


def test_what_a_global_prometheus_reads_is_recorded_by_shards() -> None:
    made = {parts.name_of(rule) for rule in rules("shard")}
    own = {parts.name_of(rule) for rule in rules("global")}
    read = set().union(*(parts.reads(rule) for rule in rules("global"))) & RECORDED
    assert read - own <= made


def test_the_command_names_the_series_and_writes_the_parts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["rules", "--selectors"]) == 0
    selectors = capsys.readouterr().out.splitlines()
    assert selectors == parts.selectors(GROUPS)
    assert all("argus_window_phase_seconds" not in selector for selector in selectors)
    for part in parts.PARTS:
        assert cli.main(["rules", "--part", part, "--output", str(tmp_path / part)]) == 0
    assert not (tmp_path / "shard" / "argus-hang.yml").exists()
    assert not (tmp_path / "global" / "argus-slow.yml").exists()
    text = (tmp_path / "global" / "argus-imbalance.yml").read_text()
    assert text.startswith("# Rules of a global (argus rules --part global).\n")
    found = {parts.name_of(rule) for group in yaml.safe_load(text)["groups"] for rule in group["rules"]}
    assert "ArgusStageImbalance" in found
    assert "ArgusWorkImbalance" not in found


SHARD = """
global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}
rule_files: [rules/*.yml]
scrape_configs:
  - job_name: argus
    static_configs: [{{targets: ["{target}"]}}]
    metric_relabel_configs: [{{source_labels: [role], regex: "{roles}|", action: keep}}]
"""
GLOBAL = """
global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}
rule_files: [rules/*.yml]
scrape_configs:
  - job_name: shards
    metrics_path: /federate
    honor_labels: true
    params: {{"match[]": {selectors}}}
    static_configs: [{{targets: {targets}}}]
"""


def test_two_shards_and_a_global_prometheus_diagnose_a_pipeline(prometheus_binary: Path) -> None:
    """The slow rank is found among its peers by its shard, the pipeline that waits across shards globally."""
    rendered = {
        part: ruleset.render_files(ruleset.Options(time_scale=1 / SPEED, part=part)) for part in parts.PARTS
    }
    with ExitStack() as stack:
        # Rank 2 of stage 0 is slow in its backward.
        sizes = ["--dp", "4", "--pp", "2"]
        address, _ = stack.enter_context(served("bubble", *sizes, "--speed", str(SPEED), "--since", "15"))
        shards = [
            stack.enter_context(
                Prometheus(
                    SHARD.format(target=address, roles=roles), rendered["shard"], binary=prometheus_binary
                )
            )
            for roles in ("pp0", "pp1")
        ]
        targets = [shard.address for shard in shards]
        config = GLOBAL.format(selectors=parts.selectors(GROUPS), targets=targets)
        whole = stack.enter_context(Prometheus(config, rendered["global"], binary=prometheus_binary))

        def firing(prometheus: Prometheus) -> set[tuple[str, str]]:
            alerts = [a["labels"] for a in prometheus.client.alerts() if a["state"] == "firing"]
            return {(a["alertname"], a.get("rank", a.get("dp", ""))) for a in alerts}

        until(lambda: ("ArgusPipelineBubbleAmplified", "2") in firing(whole), 90)
        assert firing(shards[0]) == {("ArgusComputeStraggler", "2")}
        assert firing(shards[1]) == set()
        assert {alert for alert, _ in firing(whole)} <= {
            "ArgusPipelineBubbleAmplified", "ArgusIterationRegression", "ArgusIterationJitter",
        }  # fmt: skip
        (up,) = whole.client.query("run:argus_ranks_up:sum")
        assert up.value == 8
        (series,) = whole.client.query('count({__name__=~"argus_.*"})')
        (of_shards,) = shards[0].client.query('count({__name__=~"argus_.*"})')
        # Two shards like this one; windows of phases and histograms stay there.
        assert series.value < 0.3 * 2 * of_shards.value


def test_a_name_is_read_wherever_it_stands() -> None:
    expression = (
        'label_replace(a:argus_b:c, "x", "", "", "") + argus_d{e="argus_f"} or (argus_g) / argus_h [1m]'
    )
    assert parts.reads({"expr": expression}) == {"a:argus_b:c", "argus_d", "argus_g", "argus_h"}
