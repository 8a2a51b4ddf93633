"""Ranks and roles of a run, each against its peers: the part of the run's dashboard that finds culprits."""

from __future__ import annotations

from grafanalib import core

from dashboards.factory import Draft, Query
from dashboards.navigation import (
    cell,
    label,
    to_rank,
    variable,
)
from dashboards.panels import (
    AGAINST_PEERS,
    NONE_IS_GOOD,
    Column,
    bars,
    history,
    matrix,
    series,
    table,
)

R = 'run_id="$run_id"'
ROLES = f'{R}, role=~"$role"'
SHOWN = f'{ROLES}, rank=~"$shown"'
MOST = 30
"""Ranks shown unless the reader chooses others."""

BUSY = (
    'max by (role, rank) (argus_window_busy_seconds{%s, quantile="0.0"} '
    f"/ on (run_id, role) group_left () role:argus_busy_reference_seconds:median{{{R}}})"
)
"""Busy time of ranks against their peers: 1 is typical."""

SHOWN_VARIABLE = variable(
    "shown",
    f"Ranks shown (All: the {MOST} busiest)",
    f"query_result(topk({MOST}, {BUSY % ROLES}))",
    several=True,
    regex='/rank="([^"]+)"/',
    sort=core.SORT_NUMERIC_ASC,
)
ROWS_VARIABLE = core.Template(
    name="rows",
    label="Ranks per row",
    type="custom",
    query="1 : 0, 10 : 1, 100 : 2, 1000 : 3",
    options=[
        {"selected": digits == "2", "text": text, "value": digits}
        for text, digits in (("1", "0"), ("10", "1"), ("100", "2"), ("1000", "3"))
    ],
)
FROM_RANK = [to_rank(label("rank"))]


def ranks() -> list[Draft]:
    fastest = 'quantile="0.0", kind=~"compute|host"'
    return [
        matrix(
            "Rank by phase: fastest iteration against peers",
            f"Compute and host phases of the ranks shown (the {MOST} busiest unless others are chosen), each "
            "in its fastest recent iteration, divided by what its peers typically take. 1 is typical; from "
            "1.2 a rank may be slow, from 1.5 much slower. Waiting is not in here, so victims stay near 1. "
            "Click a rank.",
            "none",
            Query(
                f"max by (rank, phase) (argus_window_phase_seconds{{{SHOWN}, {fastest}}} "
                "/ on (run_id, role, phase, kind) group_left () "
                f"role_phase:argus_phase_reference_seconds:median{{{R}}})"
            ),
            line="rank",
            column="phase",
            limits=AGAINST_PEERS,
            link=to_rank("${__value.text:percentencode}"),
        ),
        history(
            "Rank by time: busy time against peers",
            "The ranks shown, over time: compute and host seconds of the fastest recent iteration, divided "
            "by what peers typically take. The first coloured cell of a line tells since when.",
            "none",
            Query(f"max by (rank) ({BUSY % SHOWN})", "{{rank}}"),
            limits=AGAINST_PEERS,
            links=FROM_RANK,
        ),
        bars(
            "Rank by rank: the longest iteration",
            "Longest and typical busy time in one iteration over the time range, for the ranks shown. A "
            "rank high in both is slow; high in the longest only, it stalls now and then.",
            "s",
            Query(
                "max by (rank) (max_over_time("
                f'argus_window_busy_seconds{{{SHOWN}, quantile="1.0"}}[$__range]))'
            ),
            Query(
                "max by (rank) (quantile_over_time(0.5, "
                f'argus_window_busy_seconds{{{SHOWN}, quantile="0.5"}}[$__range]))'
            ),
            over="rank",
            columns=[Column("Value #A", "longest"), Column("Value #B", "typical")],
        ),
        history(
            "All ranks by time: worst of each row",
            "Every rank of the chosen roles, so many in a row as chosen above (00103 at 100 per row: ranks "
            "10300 to 10399); each cell is the row's worst rank against its peers.",
            "none",
            Query(
                "max by (row) (label_replace(label_replace("
                f'{BUSY % ROLES}, "row", "0000000$1", "rank", "(.*)"), '
                '"row", "$1", "row", ".*(.{5})[0-9]{$rows}"))',
                "{{row}}",
            ),
            limits=AGAINST_PEERS,
            height=8,
        ),
        table(
            "Slow ranks",
            "Ranks whose fastest recent iteration is beyond the threshold of their peers, by phase. What "
            "the alerts about slow ranks read; usually empty.",
            "none",
            Query(
                f"topk(100, max by (rank, role, phase, kind) (rank_phase:argus_phase_slow:ratio{{{ROLES}}}))"
            ),
            columns=[
                Column("rank", link=to_rank(cell("rank"))),
                Column("Value", "times its peers", limits=AGAINST_PEERS),
            ],
            sort="times its peers",
        ),
        table(
            "Outliers",
            "Ranks whose typical iteration lies more than two standard deviations above the mean of their "
            "peers (z-score). For people, no verdict: in small groups z stays small, in large ones chance "
            "alone makes outliers.",
            "none",
            Query(
                "topk(100, max by (rank, role, phase, kind) "
                f"(rank_phase:argus_window_phase_seconds:zscore{{{ROLES}}}))"
            ),
            columns=[Column("rank", link=to_rank(cell("rank"))), Column("Value", "z")],
            sort="z",
        ),
    ]


def roles() -> list[Draft]:
    return [
        series(
            "CV of busy time by role",
            "By how much ranks of one role differ in what they work (standard deviation / mean of busy "
            "time). It rises with one slow rank and with uneven work alike.",
            "percentunit",
            Query(f"max by (role) (role:argus_window_busy_seconds:cv{{{ROLES}}})", "{{role}}"),
        ),
        series(
            "CV by role and phase",
            "The same by phase, the ten most uneven: where the ranks differ.",
            "percentunit",
            Query(
                f"topk(10, max by (role, phase) (role_phase:argus_window_phase_seconds:cv{{{ROLES}}}))",
                "{{role}} {{phase}}",
            ),
        ),
        series(
            "Busy time by role",
            "Compute and host seconds of the typical rank of each role, per iteration.",
            "s",
            Query(f"max by (role) (role:argus_window_busy_seconds:median{{{ROLES}}})", "{{role}}"),
        ),
        series(
            "Phases of the typical rank",
            "Compute and host seconds per iteration, of the typical rank, for the role that takes longest.",
            "s",
            Query(f"max by (phase) (role_phase:argus_window_phase_seconds:median{{{ROLES}}})", "{{phase}}"),
        ),
        series(
            "Stages against the typical stage",
            "Pipeline stages: busy time of the least busy rank, divided by the typical stage's. A stage "
            "that stays above 1.2 holds too many layers.",
            "none",
            Query(f"max by (role) (role:argus_stage_busy:ratio{{{R}}})", "{{role}}"),
            limits=AGAINST_PEERS,
            zero=False,
        ),
        series(
            "Load of the busiest rank, as it changes",
            "Load in a typical iteration of the rank whose work swings most, against the typical rank, where "
            "above 1.2. Many ranks in turn: work is uneven (sequence lengths, experts), nobody is slow.",
            "none",
            Query(
                f"topk(20, max by (role, rank) (rank:argus_busy_worst:ratio{{{ROLES}}}))", "{{role}} {{rank}}"
            ),
            links=FROM_RANK,
            zero=False,
        ),
        series(
            "Uneven work that lasts",
            "Where units of work are reported: work of the rank that has most, against the typical rank, "
            "where "
            "that costs 2 % of the iteration or more (hot experts, packed sequences). Nobody is slow.",
            "none",
            Query(
                f"max by (role, phase, unit) (role_work:argus_work_skew:ratio{{{ROLES}}})",
                "{{role}} {{phase}} {{unit}}",
            ),
            zero=False,
        ),
        series(
            "Differences that chance explains",
            "Ratio that chance alone explains between ranks of a role, by phase, the ten largest: with such "
            "noise a rank is accused only beyond it.",
            "none",
            Query(
                f"topk(10, max by (role, phase) (role_phase:argus_phase_chance:ratio{{{ROLES}}}))",
                "{{role}} {{phase}}",
            ),
            zero=False,
        ),
    ]


def suspects() -> list[Draft]:
    rank = Column("rank", link=to_rank(cell("rank")))
    return [
        table(
            "Kernels that run differently",
            "Ranks whose kernels of one class last longer than their peers', as a distribution.",
            "none",
            Query(
                "topk(100, max by (rank, role, kernel_class) "
                f"(rank_class:argus_kernel_slow:ratio{{{ROLES}}}))"
            ),
            columns=[rank, Column("Value", "times its peers", limits=AGAINST_PEERS)],
            sort="times its peers",
        ),
        table(
            "Ranks that compile",
            "Ranks that stop to compile in the middle of training: the longest stop of the window.",
            "none",
            Query(f"topk(100, max by (rank, role) (rank:argus_jit_spike_seconds:max{{{ROLES}}}))"),
            columns=[rank, Column("Value", "compiling", "s")],
            sort="compiling",
        ),
        table(
            "Pipelines that wait",
            "Pipelines (dp) that wait inside themselves for a rank that is slow in part of its work: share "
            "of the iteration in transfers from stage to stage, against the typical pipeline. Pipelines "
            "without a "
            "slow rank among them: something else couples them, such as an expert group.",
            "none",
            Query(f"topk(50, max by (dp) (dp:argus_pipeline_amplified:ratio{{{R}}}))"),
            columns=[Column("Value", "times the typical")],
            sort="times the typical",
        ),
        table(
            "Dead ranks",
            "Ranks whose process ended without a clean end and has not come back.",
            "none",
            Query(f"topk(100, max by (rank, role) (rank:argus_rank_down:max{{{ROLES}}}))"),
            columns=[rank, Column("Value", "dead", limits=NONE_IS_GOOD)],
        ),
    ]
