"""How each kind of panel looks.

A panel gets what it shows (title, description, unit, queries); the habits of the house are here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from grafanalib import core

from dashboards.factory import Draft, Json, Query


def steps(*limits: tuple[str, float | None]) -> list[Json]:
    """Thresholds: each colour from its limit on; the first from everything below."""
    return [{"color": color, "value": value} for color, value in limits]


COARSE = 60
"""Points over time of panels that read a series of every rank, however long the time range."""
NO_JUDGEMENT = steps(("text", None))
AGAINST_PEERS = steps(("green", None), ("orange", 1.2), ("red", 1.5))
"""The limits of the rules: a warning from 1.2 times the peers on, critical from 1.5."""
NONE_IS_GOOD = steps(("green", None), ("red", 1))


def series(
    title: str,
    about: str,
    unit: str,
    *queries: Query,
    width: int = 12,
    height: int = 8,
    stack: bool = False,
    bars: bool = False,
    limits: list[Json] | None = None,
    zero: bool = True,
    links: Sequence[core.DataLink] = (),
    coarse: bool = False,
) -> Draft:
    """Lines (or bars) over time; ``coarse`` where each point reads a series of every rank."""
    panel = core.TimeSeries(
        title=title,
        description=about,
        unit=unit,
        drawStyle="bars" if bars else "line",
        fillOpacity=60 if bars else 15 if stack else 0,
        stacking={"mode": "normal", "group": "A"} if stack else {"mode": "none", "group": "A"},
        showPoints="never",
        axisSoftMin=0 if zero else None,
        tooltipMode="multi",
        tooltipSort="desc",
        maxDataPoints=COARSE if coarse else None,
        thresholds=limits or NO_JUDGEMENT,
        thresholdsStyleMode="dashed" if limits else "off",
        extraJson={
            "options": {"legend": {"showLegend": True}},
            "fieldConfig": {"defaults": {"links": [link.to_json_data() for link in links]}},
        },
    )
    return Draft(panel, queries, width, height)


def number(
    title: str,
    about: str,
    unit: str,
    *queries: Query,
    width: int = 4,
    limits: list[Json] | None = None,
    decimals: int | None = None,
    absent: str = "-",
    name: bool = False,
) -> Draft:
    """One value now, large."""
    panel = core.Stat(
        title=title,
        description=about,
        format=unit,
        decimals=decimals,
        reduceCalc="lastNotNull",
        graphMode="none",
        noValue=absent,
        textMode="value_and_name" if name or len(queries) > 1 else "value",
        color={"mode": "thresholds"},
        thresholds=limits or NO_JUDGEMENT,
        maxDataPoints=None,
    )
    return Draft(panel, tuple(replace(query, now=True) for query in queries), width, 4)


@dataclass(frozen=True)
class Column:
    """How a table shows one of its columns.

    Attributes:
        field: Its name: a label, ``Value``, or ``Value #A`` where there are several queries.
        title: Shown instead; labels that links need must keep their names.
        unit: Of its values.
        limits: Colours of the cells.
        link: What a click leads to.
    """

    field: str
    title: str = ""
    unit: str = ""
    limits: list[Json] | None = None
    link: core.DataLink | None = None

    def override(self) -> Json:
        properties: list[Json] = []
        if self.title:
            properties.append({"id": "displayName", "value": self.title})
        if self.unit:
            properties.append({"id": "unit", "value": self.unit})
        if self.limits:
            properties.append({"id": "thresholds", "value": {"mode": "absolute", "steps": self.limits}})
            properties.append({"id": "custom.cellOptions", "value": {"type": "color-background"}})
        if self.link:
            properties.append({"id": "links", "value": [self.link.to_json_data()]})
        return {"matcher": {"id": "byName", "options": self.field}, "properties": properties}


def _transformation(name: str, **options: Any) -> Json:
    return {"id": name, "options": options}


def _table(
    title: str,
    about: str,
    unit: str,
    transformations: list[Json],
    overrides: list[Json],
    limits: list[Json] | None = None,
    sort: str = "",
) -> core.Panel:
    return core.Table(
        title=title,
        description=about,
        unit=unit,
        filterable=False,
        overrides=overrides,
        thresholds=limits or NO_JUDGEMENT,
        transformations=transformations,
        sortBy=[core.TableSortByField(displayName=sort, desc=True)] if sort else [],
        maxDataPoints=None,
        extraJson={
            "fieldConfig": {
                "defaults": {
                    "color": {"mode": "thresholds"},
                    "custom": {
                        "displayMode": None,
                        "cellOptions": {"type": "color-background" if limits else "auto"},
                    },
                }
            },
            "options": {"cellHeight": "sm"},
        },
    )


def table(
    title: str,
    about: str,
    unit: str,
    *queries: Query,
    columns: Sequence[Column] = (),
    hide: Sequence[str] = (),
    sort: str = "",
    width: int = 12,
    height: int = 8,
) -> Draft:
    """A line for each label set, a column for each query; queries are merged by their labels."""
    hidden = dict.fromkeys(("Time", *hide), True)
    transformations = [_transformation("organize", excludeByName=hidden, indexByName={}, renameByName={})]
    if len(queries) > 1:
        transformations.insert(0, _transformation("merge"))
    panel = _table(title, about, unit, transformations, [column.override() for column in columns], sort=sort)
    return Draft(panel, queries, width, height, table=True)


def matrix(
    title: str,
    about: str,
    unit: str,
    query: Query,
    *,
    line: str,
    column: str,
    limits: list[Json],
    link: core.DataLink,
    width: int = 12,
    height: int = 12,
) -> Draft:
    """A table of ``line`` by ``column`` whose cells are coloured by value."""
    corner = f"{line}\\{column}"
    transformations = [
        _transformation(
            "groupingToMatrix", rowField=line, columnField=column, valueField="Value", emptyValue="null"
        )
    ]
    names: Json = {
        "matcher": {"id": "byName", "options": corner},
        "properties": [
            {"id": "unit", "value": "string"},
            {"id": "custom.cellOptions", "value": {"type": "auto"}},
            {"id": "links", "value": [link.to_json_data()]},
        ],
    }
    panel = _table(title, about, unit, transformations, [names], limits)
    return Draft(panel, (query,), width, height, table=True)


def history(
    title: str,
    about: str,
    unit: str,
    query: Query,
    *,
    limits: list[Json],
    links: Sequence[core.DataLink] = (),
    width: int = 12,
    height: int = 12,
) -> Draft:
    """A line for each series, a cell for each moment, coloured by value."""
    panel = core.StateTimeline(
        title=title,
        description=about,
        colorMode="thresholds",
        thresholds=limits,
        maxDataPoints=COARSE,
        extraJson={
            "type": "status-history",
            "fieldConfig": {
                "defaults": {"unit": unit, "decimals": 2, "links": [link.to_json_data() for link in links]}
            },
            "options": {
                "showValue": "never",
                "rowHeight": 0.9,
                "colWidth": 1,
                "mergeValues": None,
                "alignValue": None,
                "legend": {"showLegend": True},
            },
        },
    )
    return Draft(panel, (query,), width, height)


def bars(
    title: str,
    about: str,
    unit: str,
    *queries: Query,
    over: str,
    columns: Sequence[Column] = (),
    width: int = 12,
    height: int = 8,
) -> Draft:
    """A bar for each value of the label ``over``, now."""
    transformations = [
        _transformation("organize", excludeByName={"Time": True}, indexByName={}, renameByName={})
    ]
    if len(queries) > 1:
        transformations.insert(0, _transformation("merge"))
    panel = core.BarChart(
        title=title,
        description=about,
        transformations=transformations,
        overrides=[column.override() for column in columns],
        thresholdSteps=NO_JUDGEMENT,
        showValue="never",
        xTickLabelRotation=-45,
        tooltipMode="multi",
        maxDataPoints=None,
        extraJson={
            "fieldConfig": {"defaults": {"unit": unit, "color": {"fixedColor": None}}},
            "options": {"xField": over, "stacking": "none"},
        },
    )
    return Draft(panel, queries, width, height, table=True)


def note(title: str, about: str, text: str, width: int = 12, height: int = 8) -> Draft:
    """Words: what to do with what is seen."""
    panel = core.Text(title=title, description=about, content=text, maxDataPoints=None)
    return Draft(panel, (), width, height)
