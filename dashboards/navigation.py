"""Variables that the dashboards share, and the links that lead from one to another.

Alerts link to these dashboards (``dashboard_url`` in rules/), so uids and names of
variables are part of what users keep: tests/test_dashboards.py holds them together.
"""

from __future__ import annotations

from typing import Any

from grafanalib import core

from dashboards.factory import SOURCE

FLEET, RUN, RANK = "argus-fleet", "argus-run", "argus-rank"
COMMUNICATION, HARDWARE, ITSELF = "argus-communication", "argus-hardware", "argus-self"

RUNBOOKS = "https://runbooks.example"
"""Placeholder, as in the rules; readers set the variable ``runbooks``."""


def chosen(template: core.Template, text: Any, value: Any) -> core.Template:
    """The variable with a value that holds until the reader chooses another."""
    template._current = {"selected": True, "text": text, "value": value}
    return template


SOURCE_VARIABLE = core.Template(name="datasource", label="Data source", type="datasource", query="prometheus")
SOURCE_VARIABLE._current = None  # Grafana takes its default data source
FILTERS_VARIABLE = core.Template(
    name="filters", label="More labels", type="adhoc", query="", dataSource=SOURCE
)
"""Labels that all queries get: where the rules keep clusters apart (``argus rules --by cluster``)."""
FILTERS_VARIABLE._current = None
RUNBOOKS_VARIABLE = chosen(
    core.Template(
        name="runbooks", label="Runbooks", type="constant", query=RUNBOOKS, hide=core.HIDE_VARIABLE
    ),
    RUNBOOKS,
    RUNBOOKS,
)


def variable(
    name: str,
    label: str,
    query: str,
    *,
    several: bool = False,
    regex: str = "",
    sort: int = core.SORT_ALPHA_ASC,
    hide: int = core.SHOW,
) -> core.Template:
    """A variable whose values a query gives, anew with every time range; ``several`` adds All."""
    template = core.Template(
        name=name,
        label=label,
        query={"query": query, "refId": "variable"},
        dataSource=SOURCE,
        refresh=core.REFRESH_ON_TIME_RANGE_CHANGE,
        includeAll=several,
        multi=several,
        regex=regex,
        sort=sort,
        hide=hide,
    )
    if several:
        return chosen(template, ["All"], ["$__all"])
    template._current = None
    return template


RUN_VARIABLE = variable("run_id", "Run", "label_values(run:argus_ranks_expected:last, run_id)")
ROLES_VARIABLE = variable(
    "role", "Role", 'label_values(role:argus_ranks:count{run_id="$run_id"}, role)', several=True
)


def _address(uid: str, **values: str) -> str:
    variables = "".join(f"&var-{name}={value}" for name, value in values.items())
    return f"/d/{uid}?var-datasource=${{datasource}}{variables}"


def _chosen(name: str) -> str:
    return f"${{{name}:percentencode}}"


def cell(name: str) -> str:
    """The value of a column in the row that was clicked."""
    return f'${{__data.fields["{name}"]:percentencode}}'


def label(name: str) -> str:
    """The value of a label of the series that was clicked."""
    return f"${{__field.labels.{name}:percentencode}}"


def to(uid: str, title: str, **values: str) -> core.DataLink:
    """A link from a cell or a series; the time range goes along."""
    return core.DataLink(title=title, linkUrl=_address(uid, **values) + "&${__url_time_range}")


def to_run(run: str) -> core.DataLink:
    return to(RUN, "Run", run_id=run)


def to_rank(rank: str) -> core.DataLink:
    """To a rank of the run that is shown."""
    return to(RANK, "Rank", run_id=_chosen("run_id"), rank=rank)


def to_communicator(group_id: str) -> core.DataLink:
    return to(COMMUNICATION, "Communicator", run_id=_chosen("run_id"), group_id=group_id)


def to_runbook(alert: str) -> core.DataLink:
    return core.DataLink(title="Runbook", linkUrl=f"${{runbooks}}/{alert}.md", isNewTab=True)


def others(uid: str, *, run: bool) -> list[Any]:
    """Links at the top to the other dashboards, with the run where this one knows it."""
    values = {"run_id": _chosen("run_id")} if run else {}
    places = [
        (FLEET, "All runs", {}),
        (RUN, "Run", values),
        (COMMUNICATION, "Communication", values),
        (HARDWARE, "Hardware", values),
        (ITSELF, "ARGUS itself", {}),
    ]
    return [
        core.DashboardLink(title=title, type="link", icon="dashboard", uri=_address(target, **passed))
        for target, title, passed in places
        if target != uid
    ]
