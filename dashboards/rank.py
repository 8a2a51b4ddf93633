"""One rank: what it does with its time, against its peers, down to kernels, stacks and the device."""

from __future__ import annotations

from grafanalib import core

from dashboards import within
from dashboards.factory import Draft, Page, Query
from dashboards.findings import findings
from dashboards.histograms import quantile
from dashboards.navigation import (
    FILTERS_VARIABLE,
    RANK,
    RUN_VARIABLE,
    RUNBOOKS_VARIABLE,
    SOURCE_VARIABLE,
    label,
    others,
    to_communicator,
    variable,
)
from dashboards.panels import AGAINST_PEERS, Column, number, series, steps, table
from dashboards.within import ME, PEERS, R

RANK_VARIABLE = variable(
    "rank", "Rank", 'label_values(argus_rank_info{run_id="$run_id"}, rank)', sort=core.SORT_NUMERIC_ASC
)
ROLE_VARIABLE = variable(
    "role", "Role", 'label_values(argus_rank_info{run_id="$run_id", rank="$rank"}, role)'
)

GROUPS = f'{R}, group_id=~"$groups"'
GROUPS_VARIABLE = variable(
    "groups",
    "Its communicators",
    'label_values(argus_collective_members{run_id="$run_id", rank="$rank"}, group_id)',
    several=True,
    hide=core.HIDE_VARIABLE,
)
"""So that a rank is compared within its own communicators without reading those of the whole run."""


def page() -> Page:
    rank = Page(
        RANK,
        "ARGUS / rank",
        "One rank of a run against its peers, the ranks of the same role.",
        [
            SOURCE_VARIABLE,
            RUN_VARIABLE,
            RANK_VARIABLE,
            ROLE_VARIABLE,
            GROUPS_VARIABLE,
            FILTERS_VARIABLE,
            RUNBOOKS_VARIABLE,
        ],
        others(RANK, run=True),
        events=f'{R}, rank=~"|$rank"',
    )
    rank.row("In short", *_in_short())
    rank.row("Findings", findings(ME, "Alerts about this rank that fire now.", width=14), _identity())
    rank.row("Time, against peers", *_time())
    rank.row("Waiting", *_waiting())
    rank.row("Kernels", *within.kernels())
    rank.row("Python and host", *within.host())
    rank.row("Device", *within.device())
    rank.row("What ARGUS sees of this rank", *_tracer())
    return rank


def _in_short() -> list[Draft]:
    return [
        number(
            "Process",
            "Whether the rank's process is alive (1) or dead (0).",
            "none",
            Query(f"max(argus_rank_up{{{ME}}})"),
            limits=steps(("red", None), ("green", 1)),
        ),
        number(
            "Busy against peers",
            "Compute and host seconds of its fastest recent iteration, divided by what peers typically take.",
            "none",
            Query(
                f'max(argus_window_busy_seconds{{{ME}, quantile="0.0"}} '
                f"/ on (run_id, role) group_left () role:argus_busy_reference_seconds:median{{{R}}})"
            ),
            limits=AGAINST_PEERS,
            decimals=2,
        ),
        number(
            "Iterations behind the run",
            "How far its last completed iteration is behind the foremost rank of its role.",
            "none",
            Query(f"max(argus_iteration{{{PEERS}}}) - max(argus_iteration{{{ME}}})"),
        ),
        number(
            "Last progress",
            "Seconds since its last completed iteration, measured on the node.",
            "s",
            Query(f"max(argus_iteration_age_seconds{{{ME}}})"),
        ),
        number(
            "In this phase for",
            "The innermost open phase, or the declared pause, once older than 10 s: where a rank hangs.",
            "s",
            Query(f"max by (phase, kind) (argus_phase_open_seconds{{{ME}}})", "{{phase}}"),
            name=True,
        ),
        number(
            "Ranks of its role",
            "With how many ranks it is compared, itself included. 1: it has no peers, and only its own "
            "past counts.",
            "none",
            Query(f"max(role:argus_ranks:count{{{PEERS}}})"),
        ),
    ]


def _identity() -> Draft:
    return table(
        "Identity",
        "Node, device and coordinates of the rank.",
        "none",
        Query(f"argus_rank_info{{{ME}}}"),
        hide=("__name__", "Value", "run_id", "rank", "job", "instance"),
        width=10,
    )


def _time() -> list[Draft]:
    mine = f'max by (phase) (argus_window_phase_seconds{{{ME}, quantile="0.5"}})'
    return [
        series(
            "Phases over time",
            "Where its typical iteration goes, by phase; nested phases and waiting are subtracted, so that "
            "the areas add up to the iteration.",
            "s",
            Query(mine, "{{phase}}"),
            stack=True,
            height=10,
        ),
        series(
            "Compute and host phases against peers",
            "Its fastest recent iteration, by phase, divided by what its peers typically take. 1 is typical; "
            "from 1.2 it is slow, from 1.5 critically so.",
            "none",
            Query(
                f'max by (phase) (argus_window_phase_seconds{{{ME}, quantile="0.0", kind=~"compute|host"}} '
                "/ on (run_id, role, phase, kind) group_left () "
                f"role_phase:argus_phase_reference_seconds:median{{{R}}})",
                "{{phase}}",
            ),
            limits=AGAINST_PEERS,
            height=10,
        ),
        series(
            "Busy time against the typical rank",
            "Compute and host seconds per iteration: its fastest, typical and slowest recent iteration, and "
            "the typical rank of its role.",
            "s",
            Query(f"max by (quantile) (argus_window_busy_seconds{{{ME}}})", "this rank, {{quantile}}"),
            Query(f"max(role:argus_window_busy_seconds:median{{{PEERS}}})", "typical rank"),
        ),
        series(
            "Phases: seconds beyond peers",
            "Its typical iteration minus the typical rank's, compute and host phases: what it costs the run "
            "in each iteration. Negative: it is faster.",
            "s",
            Query(
                f'max by (phase) (argus_window_phase_seconds{{{ME}, quantile="0.5", kind=~"compute|host"}} '
                "- on (run_id, role, phase, kind) group_left () "
                f"role_phase:argus_window_phase_seconds:median{{{R}}})",
                "{{phase}}",
            ),
            zero=False,
        ),
        series(
            "Work against peers",
            "Where units of work are reported: its work in a typical iteration, and its time for one unit in "
            "the fastest, divided by the typical rank's. More work explains more time; more time for one "
            "unit does not.",
            "none",
            Query(
                f"max by (unit, phase) (argus_window_work{{{ME}}} / on (run_id, role, phase, unit) "
                f"group_left () role_work:argus_window_work:median{{{R}}})",
                "{{unit}} {{phase}}",
            ),
            Query(
                f'max by (unit, phase) (argus_window_work_seconds{{{ME}, quantile="0.0"}} '
                "/ on (run_id, role, phase, kind, unit) group_left () "
                f"role_work:argus_work_reference_seconds:median{{{R}}})",
                "time per {{unit}}, {{phase}}",
            ),
            limits=AGAINST_PEERS,
        ),
        series(
            "Wall time of its iterations",
            "Fastest, typical and slowest recent iteration. In synchronous training about the same on every "
            "rank: all wait for the slowest.",
            "s",
            Query(f"max by (quantile) (argus_window_iteration_seconds{{{ME}}})", "{{quantile}}"),
        ),
        series(
            "Phase occurrences: median",
            "Median of single occurrences of each phase, from its histogram. Needs native histograms, or "
            "exporters with --histogram.classic=all.",
            "s",
            Query(quantile("0.5", "argus_phase_seconds", ME, "phase"), "{{phase}}"),
        ),
        series(
            "Phase occurrences: slowest hundredth",
            "0.99 quantile of single occurrences of each phase, from its histogram. Needs native "
            "histograms, or exporters with --histogram.classic=all.",
            "s",
            Query(quantile("0.99", "argus_phase_seconds", ME, "phase"), "{{phase}}"),
        ),
    ]


def _waiting() -> list[Draft]:
    link = [to_communicator(label("group_id"))]
    mine = f'argus_window_collective_seconds{{{ME}, quantile="0.5"}}'
    keys = "run_id, op, group, group_id"
    return [
        series(
            "Waiting in each collective",
            "Typical seconds of one operation beyond the communicator's transfer: time spent waiting for "
            "others. Zero at a high value of the other members: they wait for this rank.",
            "s",
            Query(
                f"max by (op, group_id) ({mine} - on ({keys}) group_left () "
                f"collective:argus_transfer_seconds:min{{{GROUPS}}})",
                "{{op}} {{group_id}}",
            ),
            links=link,
        ),
        series(
            "Against the other members",
            "Its typical wait minus the typical member's of the same communicator. Far below 0: the others "
            "wait for this rank. Above 0: it waits longer than they do.",
            "s",
            Query(
                f"max by (op, group_id) ({mine} - on ({keys}) group_left () "
                f"(collective:argus_transfer_seconds:min{{{GROUPS}}} + on ({keys}) "
                f"collective:argus_wait_seconds:median{{{GROUPS}}}))",
                "{{op}} {{group_id}}",
            ),
            zero=False,
            links=link,
        ),
    ]


def _tracer() -> list[Draft]:
    return [
        series(
            "Cost of tracing",
            "Time that each source takes in the training process, as a share.",
            "percentunit",
            Query(
                f"max by (source) (rate(argus_tracer_cost_seconds_total{{{ME}}}[$__rate_interval]))",
                "{{source}}",
            ),
        ),
        table(
            "Sources",
            "Whether each source records (1), how many events it could not record, and how old its last "
            "event is.",
            "none",
            Query(f"max by (source) (argus_tracer_enabled{{{ME}}})"),
            Query(f"max by (source) (argus_tracer_dropped_total{{{ME}}})"),
            Query(f"max by (source) (argus_tracer_last_event_age_seconds{{{ME}}})"),
            columns=[
                Column("Value #A", "records", limits=steps(("red", None), ("green", 1))),
                Column("Value #B", "lost events"),
                Column("Value #C", "last event", "s"),
            ],
        ),
    ]
