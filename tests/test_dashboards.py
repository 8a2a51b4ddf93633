"""The generated dashboards: as committed, as Grafana reads them, with links that lead somewhere."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from argus import catalogue, ruleset
from argus.cli import main

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "dashboards" / "json"
DASHBOARDS: dict[str, dict[str, Any]] = {
    path.stem: json.loads(path.read_text("utf-8")) for path in sorted(FOLDER.glob("*.json"))
}
OF_PROMETHEUS = {
    "ALERTS", "ALERTS_FOR_STATE", "up", "scrape_duration_seconds", "scrape_samples_scraped",
    "process_cpu_seconds_total", "process_resident_memory_bytes", "prometheus_tsdb_head_series",
    "prometheus_rule_group_last_duration_seconds", "prometheus_rule_evaluation_failures_total",
    "prometheus_rule_group_iterations_missed_total",
}  # fmt: skip
each_dashboard = pytest.mark.parametrize("uid", DASHBOARDS)


def panels(uid: str) -> Iterator[dict[str, Any]]:
    """All but headings."""
    return (panel for panel in DASHBOARDS[uid]["panels"] if panel["type"] != "row")


def variables(uid: str) -> set[str]:
    return {variable["name"] for variable in DASHBOARDS[uid]["templating"]["list"]}


def test_what_is_committed_is_what_is_generated() -> None:
    pytest.importorskip("grafanalib")
    from dashboards.__main__ import FOLDER as PLACE
    from dashboards.__main__ import files

    committed = [f"{PLACE}/{path.name}" for path in FOLDER.iterdir()] + ["docs/panels.md"]
    assert {path: (ROOT / path).read_text("utf-8") for path in committed} == files(), "make dashboards"


@each_dashboard
def test_grafanas_models_know_every_key(uid: str) -> None:
    """What they did not know would be gone from what they write."""
    pytest.importorskip("grafana_foundation_sdk")
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins
    from grafana_foundation_sdk.models.dashboard import Dashboard

    register_default_plugins()
    written = json.loads(json.dumps(Dashboard.from_json(DASHBOARDS[uid]), cls=JSONEncoder))
    # The Prometheus data source reads these of its annotations; the models know only what all have.
    own = {f".annotations.list.{key}" for key in ("step", "tagKeys", "titleFormat")}
    assert set(_lost(DASHBOARDS[uid], written)) <= own


def _lost(value: Any, written: Any, path: str = "") -> Iterator[str]:
    if isinstance(value, dict) and isinstance(written, dict):
        for key, each in value.items():
            yield from _lost(each, written.get(key), f"{path}.{key}")
    elif isinstance(value, list) and isinstance(written, list):
        for each, other in itertools.zip_longest(value, written):
            yield from _lost(each, other, path)
    elif value != written:
        yield path


@each_dashboard
def test_a_dashboard_says_what_it_is(uid: str) -> None:
    dashboard = DASHBOARDS[uid]
    assert (dashboard["uid"], dashboard["tags"]) == (uid, ["argus"])
    assert dashboard["title"].startswith("ARGUS / ")
    assert dashboard["description"].endswith(".")
    assert dashboard["schemaVersion"] >= 39
    assert {"datasource"} < variables(uid)
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))


@each_dashboard
def test_every_panel_has_title_description_unit_and_the_chosen_data_source(uid: str) -> None:
    formats = vars(pytest.importorskip("grafanalib.formatunits"))
    units = {value for name, value in formats.items() if name.isupper()}
    source = {"type": "prometheus", "uid": "${datasource}"}
    for panel in panels(uid):
        assert panel["title"], panel
        assert panel["description"].endswith("."), panel["title"]
        if panel["type"] == "text":
            continue
        assert panel["fieldConfig"]["defaults"]["unit"] in units, panel["title"]
        assert panel["datasource"] == source, panel["title"]
        assert panel["targets"], panel["title"]
        assert all(target["datasource"] == source for target in panel["targets"]), panel["title"]
    titles = [panel["title"] for panel in panels(uid)]
    assert len(titles) == len(set(titles))


@each_dashboard
def test_panels_do_not_overlap(uid: str) -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in DASHBOARDS[uid]["panels"]:
        place = panel["gridPos"]
        assert 0 <= place["x"] < place["x"] + place["w"] <= 24, panel["title"]
        columns = range(place["x"], place["x"] + place["w"])
        for cell in itertools.product(columns, range(place["y"], place["y"] + place["h"])):
            assert cell not in taken, (panel["title"], taken.get(cell))
            taken[cell] = panel["title"]


@each_dashboard
def test_variables_are_declared_before_they_are_used(uid: str) -> None:
    known = {"__rate_interval", "__range", "1"}
    for variable in DASHBOARDS[uid]["templating"]["list"]:
        text = json.dumps(variable["query"])
        assert set(re.findall(r"\$(\w+)", text)) <= known, variable["name"]
        known.add(variable["name"])
    for panel in panels(uid):
        for target in panel.get("targets", ()):
            assert set(re.findall(r"\$(\w+)", target["expr"])) <= known, panel["title"]
    for annotation in DASHBOARDS[uid]["annotations"]["list"]:
        assert set(re.findall(r"\$(\w+)", annotation["expr"])) <= known


@each_dashboard
def test_every_metric_exists(uid: str) -> None:
    recorded = {
        rule["record"]
        for text in ruleset.load().values()
        for group in yaml.safe_load(text)["groups"]
        for rule in group["rules"]
        if "record" in rule
    }
    suffixes = {"histogram": ("", "_bucket"), "summary": ("", "_sum", "_count")}
    exposed = {
        metric.name + suffix for metric in catalogue.METRICS for suffix in suffixes.get(metric.type, ("",))
    }
    texts = [target["expr"] for panel in panels(uid) for target in panel.get("targets", ())]
    texts += [
        variable["query"]["query"]
        for variable in DASHBOARDS[uid]["templating"]["list"]
        if variable["type"] == "query"
    ]
    # Strings, ranges, matchers and lists of labels hold no metrics; what a parenthesis follows is a function.
    bare = [
        re.sub(r'"[^"]*"|\[[^]]*\]|\{[^}]*\}|\b(?:by|on|group_left) ?\([^)]*\)', "", text) for text in texts
    ]
    names = {name for text in bare for name in re.findall(r"[a-zA-Z_:][\w:]*(?![\w:]* *\()", text)}
    names -= {"and", "or", "unless", "run_id", "role", "rank", "group", "group_id", "instance"}
    assert names <= recorded | exposed | OF_PROMETHEUS


def _leads_somewhere(link: str) -> None:
    """The dashboard exists and knows the variables."""
    # Templates and Grafana's variables stand for single values.
    parts = urlsplit(re.sub(r"\{\{.*?\}\}|\$\{.*?\}", "x", link))
    match = re.fullmatch(r"/d/([\w-]+)", parts.path)
    assert match, link
    asked = {name for name in parse_qs(parts.query) if name.startswith("var-")}
    assert asked <= {f"var-{name}" for name in variables(match[1])}, link


def test_alerts_lead_to_dashboards() -> None:
    for rule in ruleset.alerts():
        link = rule["annotations"]["dashboard_url"].strip()
        assert link.startswith(f"{ruleset.DASHBOARD_BASE}/d/"), rule["alert"]
        _leads_somewhere(link)
        labels = set(re.findall(r"\$labels\.(\w+)", link))
        assert {f"var-{label}" for label in labels} == {
            name for name in parse_qs(urlsplit(link).query, keep_blank_values=True) if name.startswith("var-")
        }


@each_dashboard
def test_dashboards_lead_to_each_other_and_to_runbooks(uid: str) -> None:
    links = [link["url"] for link in DASHBOARDS[uid]["links"]]
    for panel in panels(uid):
        config = panel["fieldConfig"]
        links += [link["url"] for link in config["defaults"].get("links", ())]
        links += [
            link["url"]
            for override in config.get("overrides", ())
            for each in override["properties"]
            if each["id"] == "links"
            for link in each["value"]
        ]
    for link in links:
        if link.startswith("${runbooks}"):
            assert link == '${runbooks}/${__data.fields["alertname"]:percentencode}.md'
            assert "runbooks" in variables(uid)
        else:
            _leads_somewhere(link)
    assert {"argus-fleet", "argus-run"} - {uid} <= {
        link.split("/d/")[1].split("?")[0] for link in links if "/d/" in link
    }


def test_runbooks_are_where_the_rules_look_for_them() -> None:
    for dashboard in DASHBOARDS.values():
        (variable,) = (v for v in dashboard["templating"]["list"] if v["name"] == "runbooks")
        assert variable["query"] == variable["current"]["value"] == ruleset.RUNBOOK_BASE


def test_the_command_writes_them_with_links_that_lead_to_the_readers_runbooks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = 'https://wiki/a"b/'
    assert main(["dashboards", "--output", str(tmp_path / "new"), "--runbook-base", base]) == 0
    assert "wrote 6 files" in capsys.readouterr().err
    for path in (tmp_path / "new").iterdir():
        dashboard = json.loads(path.read_text("utf-8"))
        (variable,) = (v for v in dashboard["templating"]["list"] if v["name"] == "runbooks")
        assert variable["query"] == variable["current"]["value"] == variable["current"]["text"] == base[:-1]
        variable["query"] = variable["current"]["value"] = variable["current"]["text"] = ruleset.RUNBOOK_BASE
        assert dashboard == DASHBOARDS[path.stem]


def test_the_command_lists_them_and_says_what_it_can_not_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["dashboards", "--list"]) == 0
    assert {line.split()[0] for line in capsys.readouterr().out.splitlines()} == set(DASHBOARDS)
    assert main(["dashboards"]) == 2
    assert "--output DIR" in capsys.readouterr().err
    (tmp_path / "file").touch()
    assert main(["dashboards", "--output", str(tmp_path / "file")]) == 2
    assert "file" in capsys.readouterr().err


def test_provisioning_names_what_there_is() -> None:
    folder = FOLDER.parent / "provisioning"
    (provider,) = yaml.safe_load((folder / "dashboards.yaml").read_text())["providers"]
    assert provider["type"] == "file"
    (source,) = yaml.safe_load((folder / "datasource.yaml").read_text())["datasources"]
    # Alerts' links name no data source, so it must be the default one.
    assert (source["type"], source["isDefault"]) == ("prometheus", True)
    document = (ROOT / "docs" / "dashboards.md").read_text("utf-8")
    assert provider["options"]["path"] in document
