"""One run: what is found, where it is slow, since when, and what it costs."""

from __future__ import annotations

from dashboards import peers
from dashboards.factory import Draft, Page, Query
from dashboards.findings import findings
from dashboards.histograms import quantile
from dashboards.navigation import (
    FILTERS_VARIABLE,
    ROLES_VARIABLE,
    RUN,
    RUN_VARIABLE,
    RUNBOOKS_VARIABLE,
    SOURCE_VARIABLE,
    cell,
    others,
    to_rank,
)
from dashboards.panels import (
    Column,
    number,
    series,
    steps,
    table,
)
from dashboards.peers import ROLES, R


def page() -> Page:
    run = Page(
        RUN,
        "ARGUS / run",
        "One training run: who is slow in what, since when, and what it costs.",
        [
            SOURCE_VARIABLE,
            RUN_VARIABLE,
            ROLES_VARIABLE,
            peers.SHOWN_VARIABLE,
            peers.ROWS_VARIABLE,
            FILTERS_VARIABLE,
            RUNBOOKS_VARIABLE,
        ],
        others(RUN, run=True),
        events=R,
    )
    run.row("In short", *_in_short())
    run.row(
        "Findings",
        findings(R, "The alerts of this run that fire now, with the time since their condition holds."),
    )
    run.row("Iterations", *_iterations())
    run.row("Ranks against their peers", *peers.ranks())
    run.row("Roles and stages", *peers.roles())
    run.row("Other suspects", *peers.suspects())
    run.row("Progress", *_progress())
    return run


def _in_short() -> list[Draft]:
    lost = f"run:argus_lost_gpus:max{{{R}}}"
    return [
        number(
            "Ranks up",
            "Ranks whose process is alive, and how many belong to the run.",
            "none",
            Query(f"max(run:argus_ranks_up:sum{{{R}}})", "up"),
            Query(f"max(run:argus_ranks_expected:last{{{R}}})", "of"),
        ),
        number(
            "Iteration",
            "Typical time of one iteration (median of the ranks' medians).",
            "s",
            Query(f"max(run:argus_window_iteration_seconds:median{{{R}}})"),
            decimals=2,
        ),
        number(
            "Last progress",
            "Seconds since any rank completed an iteration.",
            "s",
            Query(f"max(run:argus_iteration_age_seconds:min{{{R}}})"),
        ),
        number(
            "GPUs lost to waiting",
            "GPU-hours lost per hour: the ranks that wait for the busiest one of its role.",
            "none",
            Query(f"max({lost})"),
            decimals=1,
        ),
        number(
            "GPU-hours lost",
            "The same, summed over the time range that is shown.",
            "none",
            Query(f"sum_over_time(max({lost})[$__range:1m]) / 60"),
            decimals=1,
        ),
        number(
            "CV of ranks",
            "By how much typical iterations differ from rank to rank (standard deviation / mean). Near 0 "
            "in synchronous training even when one rank is slow: all wait for it. Look at busy time below.",
            "percentunit",
            Query(f"max(run:argus_window_iteration_seconds:cv{{{R}}})"),
            decimals=2,
        ),
    ]


def _iterations() -> list[Draft]:
    return [
        series(
            "Iteration time",
            "Typical and slowest recent iteration, and the run's good past (10 % quantile of a day, known "
            "after half an hour, of iterations beyond 10 s after an hour). A step up without a slow rank "
            "below has a cause common to all.",
            "s",
            Query(f"max(run:argus_window_iteration_seconds:median{{{R}}})", "typical"),
            Query(f"max(run:argus_window_iteration_seconds:worst{{{R}}})", "slowest of the window"),
            Query(f"max(run:argus_iteration_good_seconds:past{{{R}}})", "good past"),
        ),
        series(
            "Iterations as a distribution",
            "Quantiles of the iterations of rank 0 (all ranks wait for each other, so one tells for all), "
            "from its histogram. A high 0.99 at a steady 0.5 is jitter. Classic buckets are coarse: "
            "exact with native histograms only.",
            "s",
            *(
                Query(quantile(each, "argus_iteration_seconds", f'{R}, rank="0"'), each)
                for each in ("0.5", "0.9", "0.99")
            ),
        ),
        series(
            "Lost time by role",
            "Seconds of each iteration for which everybody waits for the busiest rank of a role: its busy "
            "time beyond the typical rank's.",
            "s",
            Query(f"max by (role) (role:argus_lost_seconds:max{{{ROLES}}})", "{{role}}"),
        ),
        series(
            "GPUs lost over time",
            "GPU-hours lost per hour by that.",
            "none",
            Query(f"max(run:argus_lost_gpus:max{{{R}}})", "lost"),
        ),
    ]


def _progress() -> list[Draft]:
    return [
        series(
            "Time since the last iteration",
            "Seconds since any rank completed an iteration, and when that counts as a hang.",
            "s",
            Query(f"max(run:argus_iteration_age_seconds:min{{{R}}})", "since the last iteration"),
            Query(f"max(run:argus_hung_seconds:threshold{{{R}}})", "hung from"),
        ),
        series(
            "Declared pauses",
            "Evaluation, checkpoint, compilation, rendezvous: how long the pause has lasted, within its "
            "limit.",
            "s",
            Query(f"max(run:argus_pause_open_seconds:max{{{R}}})", "pause"),
        ),
        series(
            "Ranks",
            "Alive, dead, missing (neither alive nor cleanly ended), and as many as belong to the run.",
            "none",
            Query(f"max(run:argus_ranks_up:sum{{{R}}})", "up"),
            Query(f"max(run:argus_ranks_down:count{{{R}}})", "dead"),
            Query(f"max(run:argus_ranks_missing:sum{{{R}}})", "missing"),
            Query(f"max(run:argus_ranks_expected:last{{{R}}})", "expected"),
        ),
        table(
            "Who holds up a hung run",
            "Ranks behind all others, by operations or iterations, while the run hangs; 0: in the same "
            "iteration, where the others wait and this rank does not.",
            "none",
            Query(f"topk(50, max by (rank, role) (rank:argus_hang_suspect:lag{{{ROLES}}}))"),
            columns=[
                Column("rank", link=to_rank(cell("rank"))),
                Column("Value", "behind by", limits=steps(("red", None))),
            ],
        ),
    ]
