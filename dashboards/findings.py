"""The panel of firing alerts that several dashboards have."""

from __future__ import annotations

from dashboards.factory import ALERTS, Draft, Query
from dashboards.navigation import cell, to_communicator, to_rank, to_run, to_runbook
from dashboards.panels import Column, steps, table

NAMES = (
    "run_id, alertname, severity, role, rank, phase, kernel_class, op, group, group_id, dp, source, instance"
)
"""Every label that tells ARGUS's alerts apart."""


def findings(matchers: str, about: str, *, run: bool = False, width: int = 24, height: int = 8) -> Draft:
    """Firing alerts, longest first.

    Args:
        matchers: Which ones: label matchers of ALERTS.
        about: Description of the panel.
        run: Tell the run; otherwise rank and communicator are links, which need the run that is shown.
    """
    chosen = f"{ALERTS}, {matchers}" if matchers else ALERTS
    expr = (
        f"time() - max by ({NAMES}) (ALERTS_FOR_STATE{{{chosen}}}) "
        f'and on ({NAMES}) max by ({NAMES}) (ALERTS{{{chosen}, alertstate="firing"}})'
    )
    links = (
        [Column("run_id", link=to_run(cell("run_id")))]
        if run
        else [
            Column("rank", link=to_rank(cell("rank"))),
            Column("group_id", link=to_communicator(cell("group_id"))),
        ]
    )
    return table(
        "Findings",
        about + " Click the alert for its runbook, the run, rank or communicator for its dashboard.",
        "none",
        Query(expr),
        columns=[
            Column("alertname", link=to_runbook(cell("alertname"))),
            Column("Value", "active for", "s", limits=steps(("transparent", None))),
            *links,
        ],
        hide=() if run else ("run_id",),
        sort="active for",
        width=width,
        height=height,
    )
