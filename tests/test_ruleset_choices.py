"""Whatever is chosen, Prometheus takes the rules that come of it, or one line says what can't be."""

from __future__ import annotations

import random
import re
import subprocess
from pathlib import Path

import pytest

from argus import cli, ruleset
from argus.ruleset import parts, scope, shipped, thresholds


def _value(one: thresholds.Threshold, chance: random.Random) -> str:
    """One that may be given: the least, the most, or something between."""
    number = chance.choice([one.least, one.most, chance.uniform(one.least, min(one.most, one.least + 3600))])
    if one.is_duration:
        return ruleset.format_duration(number)
    return str(int(number)) if number == int(number) else f"{number:.4f}"


def test_prometheus_takes_any_choice(promtool: str, tmp_path: Path) -> None:
    table = thresholds.table()
    files = []
    for seed in range(4):
        chance = random.Random(seed)
        names = chance.sample(sorted(table), chance.randint(1, len(table)))
        options = ruleset.Options(
            scrape_interval=chance.choice([1, 60, chance.uniform(1, 60)]),
            thresholds={name: _value(table[name], chance) for name in names},
            by=chance.choice([(), ("cluster",), ("cluster", "namespace")]),
            part=chance.choice([None, *parts.PARTS]),
            alert_labels={"team": "training & 'more'"},
        )
        files.append(tmp_path / f"{seed}.yml")
        files[-1].write_text(ruleset.render_joined(options), "utf-8")
    done = subprocess.run([promtool, "check", "rules", *files], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_number_is_the_one_that_prometheus_reads() -> None:
    """PromQL takes 010 for eight."""
    with pytest.raises(ruleset.RulesetError, match="is not a number"):
        ruleset.Options(thresholds={"slow_ratio": "010"})
    assert ruleset.Options(thresholds={"slow_ratio": "10"}).thresholds == {"slow_ratio": "10"}


def test_labels_of_the_rules_are_taken() -> None:
    """All names in clauses and selectors of the rules but the data's own."""
    expressions = "\n".join(re.sub(r"#.*", "", r["expr"]) for g in shipped.all_groups() for r in g["rules"])
    clauses = re.findall(r"\b(?:by|on|ignoring|without|group_left)\s*\(([^()]*)\)", expressions)
    used = {label.strip() for clause in clauses for label in clause.split(",")} - {""}
    used |= set(re.findall(r"[{,]\s*([a-z]\w*)\s*(?:=~|!=|!~|=)", expressions))
    assert used >= {"run_id", "group_id", "dp", "node"}
    assert used <= scope.TAKEN


@pytest.mark.parametrize(
    "arguments",
    [
        ["--by", "group"],
        ["--by", "cluster,,x"],
        ["--by", "cluster,cluster"],
        ["--alert-label", "severity=page"],
        ["--alert-label", "a-b=c"],
        ["--alert-label", "team={{ broken"],
        ["--alert-label", "team=a\nb"],
        ["--runbook-base", "https://wiki/{{"],
        ["--dashboard-base", "https://grafana\nx"],
        ["--scrape-interval", "1ms"],
    ],
)
def test_what_cannot_be_is_said(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["rules", *arguments, "--output", str(tmp_path / "rules")]) == 2
    said = capsys.readouterr().err
    assert said.startswith("argus rules: ")
    assert "Traceback" not in said
    assert not (tmp_path / "rules").exists()
