"""The shipped rules, their promtool tests, runbooks and examples, on every Prometheus at hand."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from argus import catalogue, ruleset

ROOT = Path(__file__).parents[1]
RULE_TESTS = sorted((ROOT / "rules" / "tests").glob("*.yml"))
RUNBOOKS = sorted((ROOT / "runbooks").glob("*.md"))
RULES = [
    rule for text in ruleset.load().values() for g in yaml.safe_load(text)["groups"] for rule in g["rules"]
]
ALERTS = [rule for rule in RULES if "alert" in rule]
ALERT_NAMES = sorted({rule["alert"] for rule in ALERTS})
RECORDED = {rule["record"] for rule in RULES if "record" in rule}

LABELS = {
    "ArgusComputeStraggler": {"run_id", "rank", "role", "phase"},
    "ArgusHostStall": {"run_id", "rank", "role", "phase"},
    "ArgusLinkDegraded": {"run_id", "op", "group", "group_id"},
    "ArgusPipelineBubbleAmplified": {"run_id", "dp"},
    "ArgusJitBlocking": {"run_id", "rank", "role"},
    "ArgusStageImbalance": {"run_id", "role"},
    "ArgusWorkImbalance": {"run_id", "role"},
    "ArgusKernelDistributionShift": {"run_id", "rank", "role", "kernel_class"},
    "ArgusIterationRegression": {"run_id"},
    "ArgusIterationJitter": {"run_id"},
    "ArgusRunHung": {"run_id"},
    "ArgusHangSuspect": {"run_id", "rank", "role"},
    "ArgusRankDown": {"run_id", "rank", "role"},
    "ArgusRanksMissing": {"run_id"},
    "ArgusExporterDown": {"run_id", "instance"},
    "ArgusTracerDegraded": {"run_id", "rank", "role", "source"},
    "ArgusGpuThrottled": {"run_id", "rank", "role"},
    "ArgusGpuMemoryErrors": {"run_id", "rank", "role"},
    "ArgusPcieDegraded": {"run_id", "rank", "role"},
    "ArgusNvlinkDegraded": {"run_id", "rank", "role"},
}
"""As the design fixes them."""


def _versions() -> list[str]:
    """Folders of further Prometheus versions, see .ci/prometheus-versions."""
    folder = Path(os.environ.get("ARGUS_PROMETHEUS_VERSIONS", ROOT / "build" / "prometheus"))
    found = sorted(str(path.parent) for path in folder.glob("*/promtool"))
    return ["system", *found]


@pytest.fixture(scope="module", params=_versions(), ids=lambda folder: Path(folder).name)
def each_promtool(request: pytest.FixtureRequest) -> str:
    if request.param == "system":
        return str(request.getfixturevalue("promtool"))
    return str(Path(request.param) / "promtool")


def run(*command: str | Path) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_further_versions_are_at_hand() -> None:
    if len(_versions()) < 3:
        pytest.skip("only the system's Prometheus is tested; fetch others with .ci/prometheus-versions")


def test_promtool_accepts_the_rules(each_promtool: str) -> None:
    run(each_promtool, "check", "rules", *sorted((ROOT / "rules").glob("*.yml")))


@pytest.mark.parametrize("file", RULE_TESTS, ids=lambda file: file.stem)
def test_promtool_tests_pass(each_promtool: str, file: Path) -> None:
    run(each_promtool, "test", "rules", file)


@pytest.mark.parametrize(
    ("scrape_interval", "time_scale"), [(5.0, 1.0), (30.0, 1.0), (60.0, 1.0), (60.0, 0.2 / 60)]
)
def test_promtool_accepts_rendered_rules(
    each_promtool: str, tmp_path: Path, scrape_interval: float, time_scale: float
) -> None:
    for name, text in ruleset.render(scrape_interval, time_scale).items():
        (tmp_path / name).write_text(text)
    run(each_promtool, "check", "rules", *sorted(tmp_path.glob("*.yml")))


def test_examples_are_accepted(each_promtool: str) -> None:
    output = run(each_promtool, "check", "config", ROOT / "examples" / "prometheus.yml")
    assert output.count("rules found") >= 7, "the example finds the shipped rules"


def amtool(*arguments: str | Path) -> str:
    if shutil.which("amtool") is None:
        pytest.skip("amtool is not installed (Debian package prometheus-alertmanager)")
    return run("amtool", *arguments)


def test_alertmanager_example_is_accepted() -> None:
    assert "1 templates" in amtool("check-config", ROOT / "examples" / "alertmanager.yml")


@pytest.mark.parametrize(
    ("labels", "receiver"),
    [
        (["alertname=ArgusComputeStraggler", "severity=critical"], "training-critical"),
        (["alertname=ArgusWorkImbalance", "severity=warning"], "training"),
        (["alertname=ArgusKernelDistributionShift", "severity=info"], "nobody"),
        (["alertname=ArgusGpuMemoryErrors", "severity=info"], "nobody"),
    ],
)
def test_alertmanager_example_routes_by_severity(labels: list[str], receiver: str) -> None:
    config = ROOT / "examples" / "alertmanager.yml"
    assert amtool("config", "routes", "test", f"--config.file={config}", *labels).split()[0] == receiver


def example_with_snapshots() -> str:
    """The shipped example, with what its last comment says put where it says."""
    text = (ROOT / "examples" / "alertmanager.yml").read_text()
    note = text[text.index("# To keep what accused ranks did last") :].splitlines()
    route = [line[1:] for line in note if line.startswith("#    ")][:4]
    receiver = [line[1:] for line in note if line.startswith("#  - name")]
    receiver += [line[1:] for line in note if line.startswith("#    ")][4:]
    text = text.replace("  routes:\n", "\n".join(["  routes:", *route]) + "\n", 1)
    return text.replace("  - name: nobody\n", "\n".join(["  - name: nobody", *receiver]) + "\n", 1)


def documented_snapshots() -> str:
    """The configuration in docs/flight-recorder.md."""
    text = (ROOT / "docs" / "flight-recorder.md").read_text()
    return next(part for part in text.split("```") if part.startswith("yaml\nroute:")).removeprefix("yaml\n")


@pytest.mark.parametrize("config", [example_with_snapshots, documented_snapshots])
def test_snapshots_take_no_alert_from_the_people(tmp_path: Path, config: Callable[[], str]) -> None:
    file = tmp_path / "alertmanager.yml"
    file.write_text(config())
    shutil.copy(ROOT / "examples" / "argus.tmpl", tmp_path)

    def receivers(*labels: str) -> str:
        return amtool("config", "routes", "test", f"--config.file={file}", *labels).split()[0]

    labels = ("alertname=ArgusComputeStraggler", "severity=warning")
    assert receivers(*labels, "rank=3") == "argus-snapshots,training"
    assert receivers(*labels) == "training"


@pytest.mark.parametrize(("count", "described", "named", "total"), [(3, 3, 0, False), (600, 20, 480, True)])
def test_message_template_is_bounded(
    tmp_path: Path, count: int, described: int, named: int, total: bool
) -> None:
    alerts = [
        {
            "status": "firing",
            "labels": {"alertname": "ArgusComputeStraggler", "severity": "critical", "rank": f"r{i}"},
            "annotations": {
                "description": f"About r{i}.",
                "runbook_url": "https://w/x.md",
                "dashboard_url": "https://g",
            },
        }
        for i in range(count)
    ]
    data = tmp_path / "data.json"
    common = {"severity": "critical", "phase": "mlp"}
    data.write_text(
        json.dumps(
            {
                "status": "firing",
                "alerts": alerts,
                "commonLabels": common,
                "groupLabels": {"alertname": "ArgusComputeStraggler", "run_id": "r"},
            }
        )
    )
    template = ROOT / "examples" / "argus.tmpl"

    def render(name: str) -> str:
        text = f'{{{{ template "{name}" . }}}}'
        return amtool(
            "template",
            "render",
            f"--template.glob={template}",
            f"--template.data={data}",
            f"--template.text={text}",
        )

    title = f"[CRITICAL] ArgusComputeStraggler in run r, phase mlp ({count} alerts)"
    assert render("argus.title").strip() == title
    text = render("argus.text")
    assert text.count("About r") == described
    further = re.search(r"Further ranks: (.*)", text)
    assert (len(further[1].split(", ")) if further else 0) == named
    assert (f"{count} alerts in all." in text) is total
    assert "Runbook: https://w/x.md" in text


def metrics_in(expression: str) -> set[str]:
    """Names of ARGUS's metrics in a PromQL expression."""
    bare = re.sub(r'"(?:\\.|[^"\\])*"', '""', expression)
    return set(re.findall(r"(?<![\w:])(?:[a-z_]+:)?argus_\w+(?::\w+)?", bare))


def exposed() -> set[str]:
    """Names of series that the exporter can expose, suffixes included."""
    names = set()
    for metric in catalogue.METRICS:
        names.add(metric.name)
        if metric.type in ("histogram", "summary"):
            names |= {f"{metric.name}_sum", f"{metric.name}_count"}
        if metric.type == "histogram":
            names.add(f"{metric.name}_bucket")
    return names


def queries_in(annotation: str) -> list[str]:
    """PromQL inside an annotation's templates."""
    return re.findall(r'printf "((?:\\.|[^"\\])*)"[^|}]*\| query', annotation)


def blocks(path: Path) -> list[str]:
    return re.findall(r"```promql\n(.*?)```", path.read_text(), re.DOTALL)


def test_every_metric_in_rules_is_known() -> None:
    for rule in RULES:
        texts = [rule["expr"], *(q for a in rule.get("annotations", {}).values() for q in queries_in(a))]
        for text in texts:
            unknown = metrics_in(text) - exposed() - RECORDED
            assert not unknown, f"{rule.get('record', rule.get('alert'))}: {unknown}"


def test_every_recorded_series_is_documented_and_no_other() -> None:
    documented = set()
    for row in re.findall(r"^\| (`.*?`) \|", (ROOT / "docs" / "alerts.md").read_text(), re.MULTILINE):
        prefix = ""
        for name in re.findall(r"`([^`]*)`", row):
            if not name.startswith(":"):
                prefix = name.rpartition(":")[0]
            documented.add(name if not name.startswith(":") else prefix + name)
    assert {name for name in documented if "argus_" in name} == RECORDED


def test_recorded_names_follow_the_convention() -> None:
    levels = {"run", "role", "rank", "collective", "instance"}
    levels |= {f"{who}_{part}" for who in ("role", "rank") for part in ("phase", "class", "work")}
    levels |= {"op", "node", "dp", "rank_source", "rank_trouble"}
    for name in RECORDED:
        level, metric, operation = name.split(":")
        assert level in levels, name
        assert metric.startswith("argus_"), name
        assert operation, name


def test_alerts_are_those_of_the_design() -> None:
    assert set(ALERT_NAMES) == set(LABELS)


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: f"{rule['alert']}-{rule['labels']['severity']}")
def test_alert_is_complete(rule: dict[str, Any]) -> None:
    aggregated = re.match(r"max by \(([^)]*)\) \(", rule["expr"])
    assert aggregated, "an expression ends in max by (<its labels>)"
    assert set(aggregated[1].split(", ")) == LABELS[rule["alert"]]
    assert rule["labels"].keys() == {"severity"}
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert rule["annotations"].keys() == {"summary", "description", "runbook_url", "dashboard_url"}
    assert rule["annotations"]["runbook_url"] == f"{ruleset.RUNBOOK_BASE}/{rule['alert']}.md"
    assert rule["annotations"]["dashboard_url"].startswith(f"{ruleset.DASHBOARD_BASE}/d/argus-")
    assert "for" in rule
    assert "keep_firing_for" in rule


@pytest.mark.parametrize("alert", ALERT_NAMES)
def test_alert_has_a_firing_and_a_silent_test_for_each_severity(alert: str) -> None:
    expected: set[str] = set()
    silent = False
    for file in RULE_TESTS:
        for case in yaml.safe_load(file.read_text())["tests"]:
            for check in case.get("alert_rule_test", ()):
                if check["alertname"] == alert:
                    fired = check["exp_alerts"]
                    silent |= not fired
                    for one in fired:
                        expected.add(one["exp_labels"]["severity"])
                        assert one["exp_annotations"].keys() >= {"summary", "description", "runbook_url"}
    assert expected == {rule["labels"]["severity"] for rule in ALERTS if rule["alert"] == alert}
    assert silent


@pytest.mark.parametrize("alert", ALERT_NAMES)
def test_alert_has_a_runbook(alert: str) -> None:
    text = (ROOT / "runbooks" / f"{alert}.md").read_text()
    assert text.startswith(f"# {alert}\n")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == ["Meaning", "Impact", "Diagnosis", "Mitigation"]
    assert blocks(ROOT / "runbooks" / f"{alert}.md")
    assert len(ruleset.meaning(alert)) > 40


def test_every_runbook_belongs_to_an_alert_and_names_known_metrics() -> None:
    assert [path.stem for path in RUNBOOKS] == ALERT_NAMES
    for path in RUNBOOKS:
        for query in blocks(path):
            assert not metrics_in(query) - exposed() - RECORDED, f"{path.name}: {query}"


def test_runbook_and_annotation_queries_parse(each_promtool: str, tmp_path: Path) -> None:
    queries = [block for path in RUNBOOKS for block in blocks(path)]
    for rule in ALERTS:
        for query in queries_in(rule["annotations"]["description"]):
            queries.append(query.replace('\\"', '"').replace("%q", '"x"').replace("%s", 'rank="x"'))
    assert len(queries) > 60
    rules = [{"record": f"test:query:{number}", "expr": query} for number, query in enumerate(queries)]
    file = tmp_path / "queries.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    run(each_promtool, "check", "rules", "--lint=none", file)
