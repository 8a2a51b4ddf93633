"""All runs at a glance: which one needs somebody, and what it costs."""

from __future__ import annotations

from dashboards.factory import ALERTS, Page, Query
from dashboards.findings import findings
from dashboards.navigation import (
    FILTERS_VARIABLE,
    FLEET,
    RUNBOOKS_VARIABLE,
    SOURCE_VARIABLE,
    cell,
    label,
    others,
    to_run,
)
from dashboards.panels import NONE_IS_GOOD, Column, number, series, steps, table


def page() -> Page:
    fleet = Page(
        FLEET,
        "ARGUS / all runs",
        "Every training run that this Prometheus knows: findings, progress, lost GPU-hours. Start here "
        "without an alert.",
        [SOURCE_VARIABLE, FILTERS_VARIABLE, RUNBOOKS_VARIABLE],
        others(FLEET, run=False),
        since="now-6h",
    )
    firing = f'ALERTS{{{ALERTS}, alertstate="firing", severity="%s"}}'
    fleet.row(
        "In short",
        number(
            "Runs alive",
            "Runs with at least one rank alive.",
            "none",
            Query("count(run:argus_ranks_up:sum > 0)"),
        ),
        number(
            "Ranks up",
            "Ranks whose process is alive, of all runs.",
            "none",
            Query("sum(run:argus_ranks_up:sum)"),
        ),
        number(
            "Critical findings",
            "Critical ARGUS alerts that fire now; each names a culprit or a run that stands still.",
            "none",
            Query(f"count({firing % 'critical'}) or vector(0)"),
            limits=NONE_IS_GOOD,
        ),
        number(
            "Warnings",
            "ARGUS warnings that fire now.",
            "none",
            Query(f"count({firing % 'warning'}) or vector(0)"),
            limits=steps(("green", None), ("orange", 1)),
        ),
        number(
            "GPUs lost to waiting",
            "GPU-hours lost per hour, of all runs: the ranks that wait for the busiest one of its role. "
            "10 means that ten GPUs might as well be off.",
            "none",
            Query("sum(run:argus_lost_gpus:max)"),
            decimals=1,
        ),
        number(
            "Longest without progress",
            "Seconds since any rank completed an iteration, of the run for which that is longest.",
            "s",
            Query("max(run:argus_iteration_age_seconds:min)"),
        ),
    )
    fleet.row(
        "Runs",
        table(
            "Runs",
            "A line for each run. CV of ranks: by how much typical iterations differ from rank to rank "
            "(standard deviation / mean). Click a run for its dashboard.",
            "none",
            Query("max by (run_id) (run:argus_ranks_up:sum)"),
            Query("max by (run_id) (run:argus_ranks_expected:last)"),
            Query("max by (run_id) (run:argus_window_iteration_seconds:median)"),
            Query("max by (run_id) (run:argus_window_iteration_seconds:cv)"),
            Query("max by (run_id) (run:argus_lost_gpus:max)"),
            Query("max by (run_id) (run:argus_iteration_age_seconds:min)"),
            Query(f"count by (run_id) ({firing % 'critical'})"),
            Query(f"count by (run_id) ({firing % 'warning'})"),
            columns=[
                Column("run_id", link=to_run(cell("run_id"))),
                Column("Value #A", "ranks up"),
                Column("Value #B", "of"),
                Column("Value #C", "iteration", "s"),
                Column("Value #D", "CV of ranks", "percentunit"),
                Column("Value #E", "GPUs lost"),
                Column("Value #F", "last progress", "s"),
                Column("Value #G", "critical", limits=NONE_IS_GOOD),
                Column("Value #H", "warnings", limits=steps(("green", None), ("orange", 1))),
            ],
            sort="GPUs lost",
            width=24,
            height=10,
        ),
        findings(
            "", "The alerts that fire now, of all runs, with the time since their condition holds.", run=True
        ),
    )
    link = [to_run(label("run_id"))]
    fleet.row(
        "Over time",
        series(
            "GPUs lost to waiting, by run",
            "GPU-hours lost per hour because ranks wait for the busiest one of its role; the ten worst runs.",
            "none",
            Query("topk(10, max by (run_id) (run:argus_lost_gpus:max))", "{{run_id}}"),
            links=link,
        ),
        series(
            "Findings by alert",
            "How many alerts of each name fire.",
            "none",
            Query(f'count by (alertname) (ALERTS{{{ALERTS}, alertstate="firing"}})', "{{alertname}}"),
            stack=True,
            bars=True,
        ),
        series(
            "Iteration time against the hour before",
            "Typical iteration of each run, relative to its shortest in the hour before; the ten runs "
            "that changed most. 1 is steady.",
            "none",
            Query(
                "topk(10, max by (run_id) (run:argus_window_iteration_seconds:median "
                "/ min_over_time(run:argus_window_iteration_seconds:median[1h])))",
                "{{run_id}}",
            ),
            zero=False,
            links=link,
        ),
        series(
            "Ranks missing",
            "Ranks that are neither up nor cleanly ended, by run.",
            "none",
            Query("topk(10, max by (run_id) (run:argus_ranks_missing:sum))", "{{run_id}}"),
            links=link,
        ),
    )
    return fleet
