"""A dashboard in the making: drafts of panels (panels.py), flowed into Grafana's grid.

Places, ids and the data source are added here.  grafanalib makes the JSON; what it
still writes for Grafana before version 8 is taken out again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import attr
from grafanalib import core
from grafanalib._gen import DashboardEncoder

Json = dict[str, Any]

WIDTH = 24
"""Columns of Grafana's grid."""
SCHEMA = 39
"""Of Grafana 10.3; later ones migrate it themselves."""
SOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}
"""The data source that the reader has chosen."""
ALERTS = 'alertname=~"Argus.+"'
TAG = "argus"

LEGACY = frozenset((
    "__inputs", "auto", "auto_count", "auto_min", "cacheTimeout", "color", "columns", "editable", "error",
    "fontSize", "gnetId", "height", "hideControls", "hideTimeOverride", "mappings", "minSpan", "rows",
    "sharedCrosshair", "span", "style", "tagValuesQuery", "tagsQuery", "time_options", "useTags",
))  # fmt: skip
"""Keys of dashboards, panels and variables that Grafana gave up long ago."""
ROW = ("collapsed", "gridPos", "id", "panels", "title", "type")
"""All that a heading has."""


@dataclass(frozen=True)
class Query:
    """One query of a panel.

    Attributes:
        expr: PromQL, with Grafana's variables.
        legend: Name of each series, such as ``{{rank}}``.
        now: One value at the end of the time range, instead of values over time.
    """

    expr: str
    legend: str = ""
    now: bool = False


@dataclass(frozen=True)
class Draft:
    """A panel without its place."""

    panel: core.Panel
    queries: tuple[Query, ...]
    width: int
    height: int
    table: bool = False


@dataclass
class Page:
    """A dashboard in the making: rows of panels, placed from left to right and from top to bottom."""

    uid: str
    title: str
    about: str
    variables: Sequence[core.Template]
    links: Sequence[core.DashboardLink]
    events: str = ""
    """Alerts to mark on all panels: label matchers of ALERTS."""
    since: str = "now-1h"
    panels: list[core.Panel] = field(default_factory=list)
    _top: int = 0

    def row(self, title: str, *drafts: Draft) -> None:
        """Add a row with a heading."""
        heading = core.RowPanel(title=title, gridPos=core.GridPos(h=1, w=WIDTH, x=0, y=self._top))
        self.panels.append(attr.evolve(heading, id=len(self.panels) + 1))
        left, top, bottom = 0, self._top + 1, self._top + 1
        for draft in drafts:
            if left + draft.width > WIDTH:
                left, top = 0, bottom
            place = core.GridPos(h=draft.height, w=draft.width, x=left, y=top)
            self.panels.append(
                attr.evolve(
                    draft.panel,
                    id=len(self.panels) + 1,
                    gridPos=place,
                    dataSource=SOURCE if draft.queries else None,
                    targets=[
                        _target(query, "ABCDEFGHIJ"[n], draft.table) for n, query in enumerate(draft.queries)
                    ],
                )
            )
            left += draft.width
            bottom = max(bottom, top + draft.height)
        self._top = bottom

    def json(self) -> Json:
        """As Grafana reads it."""
        dashboard = core.Dashboard(
            title=self.title,
            uid=self.uid,
            description=self.about,
            tags=[TAG],
            links=list(self.links),
            templating=core.Templating(list=list(self.variables)),
            annotations=core.Annotations(list=[_events(self.events)] if self.events else []),
            panels=self.panels,
            time=core.Time(self.since, "now"),
            timezone="browser",
            refresh="1m",
            graphTooltip=core.GRAPH_TOOLTIP_MODE_SHARED_CROSSHAIR,
            timePicker=core.TimePicker(refreshIntervals=["15s", "1m", "5m", "15m"], timeOptions=None),
            schemaVersion=SCHEMA,
        )
        document: Json = json.loads(json.dumps(dashboard.to_json_data(), cls=DashboardEncoder))
        document["panels"] = [_modern(panel) for panel in document["panels"]]
        document["templating"]["list"] = [_modern(variable) for variable in document["templating"]["list"]]
        return _modern(document)


def _modern(item: Json) -> Json:
    """Without what is unset, and without legacy keys."""
    kept = {key: value for key, value in _set(item).items() if key not in LEGACY}
    return {key: kept[key] for key in ROW} if kept.get("type") == "row" else kept


def _set(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {"color", "value"}:  # a threshold: the first has no limit, and says so
            return value
        return {key: _set(each) for key, each in value.items() if each is not None}
    return [_set(each) for each in value] if isinstance(value, list) else value


def _target(query: Query, ref: str, table: bool) -> Json:
    now = query.now or table
    return {
        "refId": ref,
        "datasource": SOURCE,
        "expr": query.expr,
        "legendFormat": query.legend,
        "format": "table" if table else "time_series",
        "instant": now,
        "range": not now,
        "editorMode": "code",
    }


def _events(matchers: str) -> Json:
    return {
        "name": "Alerts",
        "enable": True,
        "iconColor": "red",
        "datasource": SOURCE,
        "expr": f'max by (alertname, severity) (ALERTS{{{ALERTS}, alertstate="firing", {matchers}}})',
        "step": "60s",
        "titleFormat": "{{alertname}}",
        "tagKeys": "severity",
    }


def write(pages: Iterable[Page]) -> dict[str, str]:
    """File name -> text of each dashboard."""
    return {f"{page.uid}.json": json.dumps(page.json(), indent=2, sort_keys=True) + "\n" for page in pages}
