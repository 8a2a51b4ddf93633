"""Loading and rendering the rules, and the command that writes them."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from argus import cli, ruleset
from argus.ruleset.durations import rescale_template


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("15s", 15), ("1m30s", 90), ("500ms", 0.5), ("1d", 86400), ("2h", 7200), ("1w", 604800)],
)
def test_durations_are_read_and_written(text: str, seconds: float) -> None:
    assert ruleset.parse_duration(text) == seconds
    assert ruleset.parse_duration(ruleset.format_duration(seconds)) == seconds


@pytest.mark.parametrize("text", ["", "15", "s", "1.5s", "15 s", "15S", "abc"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ruleset.RulesetError, match="write it like 15s"):
        ruleset.parse_duration(text)


def test_a_duration_is_never_zero() -> None:
    assert ruleset.format_duration(1e-9) == "1ms"
    assert ruleset.format_duration(1.1666) == "1s167ms"


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("a[5m]", "a[10m]"),
        ("a[1m30s:15s]", "a[3m:30s]"),
        ("a[1h:]", "a[2h:]"),
        ("a[ 5m ] offset 10m", "a[10m] offset 20m"),
        ("a offset -5m", "a offset -10m"),
        ("a OFFSET 5m", "a OFFSET 10m"),
        # Not durations: names, strings, comments, labels, numbers.
        ('a{x="[5m] offset 5m"}', 'a{x="[5m] offset 5m"}'),
        (r'a{x="\"[5m]"}[5m]', r'a{x="\"[5m]"}[10m]'),
        ("a{x='[5m]', y=`[5m]`}[5m]", "a{x='[5m]', y=`[5m]`}[10m]"),
        ("a # [5m]\n[5m]", "a # [5m]\n[10m]"),
        ("run:rate5m:sum + 5", "run:rate5m:sum + 5"),
        ("sum by (offset) (a)", "sum by (offset) (a)"),
        ("my:offset 5", "my:offset 5"),
    ],
)
def test_only_durations_of_an_expression_change(expression: str, expected: str) -> None:
    assert ruleset.rescale_expression(expression, lambda seconds: 2 * seconds) == expected


def test_ranges_of_an_annotations_queries_change_and_its_words_do_not() -> None:
    template = (
        'in [5m] {{ with printf "rate(a{%s}[2m]) > 0" $rank | query }}{{ . | first | value }} [1m]{{ end }}'
    )
    assert rescale_template(template, lambda seconds: 2 * seconds) == template.replace("[2m]", "[4m]")


def test_rendering_for_the_native_interval_changes_nothing() -> None:
    shipped = {name: yaml.safe_load(text) for name, text in ruleset.load().items()}
    assert {name: yaml.safe_load(text) for name, text in ruleset.render().items()} == shipped


def rule(files: dict[str, str], alert: str, severity: str) -> dict[str, object]:
    for text in files.values():
        for group in yaml.safe_load(text)["groups"]:
            for one in group["rules"]:
                if one.get("alert") == alert and one["labels"]["severity"] == severity:
                    return {**one, "interval": group["interval"]}
    raise AssertionError(alert)


@pytest.mark.parametrize(
    ("scrape", "scale", "interval", "critical", "warning", "lookback", "keep"),
    [
        (15.0, 1.0, "15s", "15s", "5m", "[35s]", "2m"),
        # Scrapes are scaled, times stay ...
        (5.0, 1.0, "5s", "5s", "5m", "[11s667ms]", "2m"),
        # ... but never below four scrapes.
        (60.0, 1.0, "1m", "1m", "5m", "[2m20s]", "4m"),
        # A minute compressed into 0.6 s.
        (60.0, 0.01, "600ms", "600ms", "3s", "[1s400ms]", "2s400ms"),
    ],
)
def test_durations_follow_the_scrape_interval(
    scrape: float, scale: float, interval: str, critical: str, warning: str, lookback: str, keep: str
) -> None:
    files = ruleset.render(scrape, scale)
    first = rule(files, "ArgusComputeStraggler", "critical")
    assert (first["interval"], first["for"]) == (interval, critical)
    assert rule(files, "ArgusLinkDegraded", "critical")["keep_firing_for"] == keep
    assert rule(files, "ArgusStageImbalance", "warning")["for"] == warning
    assert lookback in str(rule(files, "ArgusComputeStraggler", "warning")["expr"])


def intervals(scrape: float) -> dict[str, float]:
    groups = [g for text in ruleset.render(scrape).values() for g in yaml.safe_load(text)["groups"]]
    return {group["name"]: ruleset.parse_duration(group["interval"]) for group in groups}


@pytest.mark.parametrize(
    ("scrape", "slow", "link", "work", "kernels"),
    [(5.0, 5, 10, 20, 40), (15.0, 15, 30, 60, 120), (30.0, 30, 30, 60, 120), (60.0, 60, 60, 60, 120)],
)
def test_groups_run_as_often_as_they_must_and_never_more_often_than_scrapes(
    scrape: float, slow: float, link: float, work: float, kernels: float
) -> None:
    found = intervals(scrape)
    names = ("argus-l2-slow", "argus-l2-link", "argus-l2-work", "argus-l3-kernels")
    assert [found[name] for name in names] == [slow, link, work, kernels]


def test_no_for_is_below_one_evaluation() -> None:
    for scrape, scale in ((1.0, 1.0), (15.0, 1.0), (60.0, 1.0), (60.0, 0.0005)):
        for text in ruleset.render(scrape, scale).values():
            for group in yaml.safe_load(text)["groups"]:
                interval = ruleset.parse_duration(group["interval"])
                for one in group["rules"]:
                    for key in ("for", "keep_firing_for"):
                        assert ruleset.parse_duration(one.get(key, "1y")) >= interval


def test_bases_and_labels_are_rendered() -> None:
    files = ruleset.render(
        runbook_base="https://wiki/rb/", dashboard_base="https://graf", alert_labels={"team": "training"}
    )
    found = rule(files, "ArgusRankDown", "critical")
    assert found["labels"] == {"severity": "critical", "team": "training"}
    annotations = found["annotations"]
    assert isinstance(annotations, dict)
    assert annotations["runbook_url"] == "https://wiki/rb/ArgusRankDown.md"
    assert annotations["dashboard_url"].startswith("https://graf/d/argus-rank?var-run_id={{")
    assert ".example" not in "".join(files.values())


@pytest.mark.parametrize(
    ("scrape", "scale"), [(0.0, 1.0), (-1.0, 1.0), (300.0, 1.0), (15.0, 0.0), (15.0, 2.0)]
)
def test_circumstances_that_make_no_sense_are_refused(scrape: float, scale: float) -> None:
    with pytest.raises(ruleset.RulesetError):
        ruleset.render(scrape, scale)


def test_command_writes_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "new" / "rules"
    assert cli.main(["rules", "--output", str(folder), "--scrape-interval", "30s"]) == 0
    assert sorted(path.name for path in folder.iterdir()) == list(ruleset.load())
    assert (folder / "argus-slow.yml").read_text() == ruleset.render(30.0)["argus-slow.yml"]
    said = capsys.readouterr().err
    assert f"wrote {len(ruleset.load())} files to {folder}" in said
    assert "remove" not in said
    # Hangs are the global Prometheus's business, so shards must not go on with them.
    assert cli.main(["rules", "--output", str(folder), "--part", "shard"]) == 0
    assert capsys.readouterr().err.endswith("may name it too: argus-hang.yml\n")


def test_command_prints_one_rule_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["rules"]) == 0
    groups = yaml.safe_load(capsys.readouterr().out)["groups"]
    assert len({group["name"] for group in groups}) == len(groups) >= len(ruleset.load())


def test_command_writes_an_object_for_the_operator(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["rules", "--format", "operator", "--object-label", "example.org/release=prom"]
    assert cli.main([*arguments, "--alert-label", "team=training"]) == 0
    found = yaml.safe_load(capsys.readouterr().out)
    assert (found["apiVersion"], found["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
    assert found["metadata"] == {"name": "argus", "labels": {"example.org/release": "prom"}}
    alerts = [rule for group in found["spec"]["groups"] for rule in group["rules"] if "alert" in rule]
    assert {alert["labels"]["team"] for alert in alerts} == {"training"}


def test_command_lists_every_alert_with_its_meaning(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["rules", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len({rule["alert"] for rule in ruleset.alerts()})
    found = next(line for line in lines if line.startswith("ArgusRankDown "))
    assert found.split(maxsplit=2)[1:] == [
        "critical",
        "The process of a rank died without a clean end, and for two minutes "
        "it has not come back on any node.",
    ]


def test_command_prints_a_runbook(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["rules", "--runbook", "ArgusRankDown"]) == 0
    text = capsys.readouterr().out
    assert text == (Path(__file__).parent.parent / "runbooks" / "ArgusRankDown.md").read_text("utf-8")
    assert cli.main(["rules", "--runbook", "argusrankdown"]) == 0
    assert capsys.readouterr().out == text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--scrape-interval", "15"], "'15' is not a duration"),
        (["--scrape-interval", "10m"], "take 1 s to 60 s"),
        (["--alert-label", "team"], "--alert-label 'team': write it as name=value"),
        (["--runbook", "ArgusRankDwon"], "there is no alert 'ArgusRankDwon'; did you mean ArgusRankDown?"),
        (["--runbook", "../README"], "there is no alert '../README'; there are ArgusComputeStraggler, "),
    ],
)
def test_command_says_what_is_wrong(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["rules", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_command_says_when_it_cannot_write(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("")
    assert cli.main(["rules", "--output", str(blocker)]) == 2
    assert str(blocker) in capsys.readouterr().err
