"""The shipped rules: load them, and render them for another installation."""

from argus.ruleset.durations import format_duration, parse_duration, rescale_expression
from argus.ruleset.errors import RulesetError
from argus.ruleset.render import (
    COUNTS_SCRAPES_UP_TO,
    DASHBOARD_BASE,
    LEAST_SCRAPES,
    NATIVE_INTERVAL,
    RUNBOOK_BASE,
    Options,
    dump,
    render,
    render_files,
    render_groups,
    render_joined,
    render_operator,
)
from argus.ruleset.shipped import alerts, load, meaning, runbook
from argus.ruleset.vmalert import render_vmalert

__all__ = [
    "COUNTS_SCRAPES_UP_TO",
    "DASHBOARD_BASE",
    "LEAST_SCRAPES",
    "NATIVE_INTERVAL",
    "RUNBOOK_BASE",
    "Options",
    "RulesetError",
    "alerts",
    "dump",
    "format_duration",
    "load",
    "meaning",
    "parse_duration",
    "render",
    "render_files",
    "render_groups",
    "render_joined",
    "render_operator",
    "render_vmalert",
    "rescale_expression",
    "runbook",
]
