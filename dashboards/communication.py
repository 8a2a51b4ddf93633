"""Communicators of a run: what their transfers take, and who waits in them."""

from __future__ import annotations

from dashboards.factory import Draft, Page, Query
from dashboards.findings import findings
from dashboards.navigation import (
    COMMUNICATION,
    FILTERS_VARIABLE,
    RUN_VARIABLE,
    RUNBOOKS_VARIABLE,
    SOURCE_VARIABLE,
    cell,
    label,
    others,
    to_communicator,
    to_rank,
    variable,
)
from dashboards.panels import Column, number, series, steps, table

R = 'run_id="$run_id"'
GROUPS = f'{R}, group=~"$group"'
CHOSEN = f'{R}, group_id="$group_id"'
MOST = 15

GROUP_VARIABLE = variable(
    "group",
    "Kind of group",
    f"label_values(collective:argus_transfer_seconds:min{{{R}}}, group)",
    several=True,
)
COMMUNICATOR_VARIABLE = variable(
    "group_id", "Communicator", f"label_values(collective:argus_transfer_seconds:min{{{GROUPS}}}, group_id)"
)


def page() -> Page:
    communication = Page(
        COMMUNICATION,
        "ARGUS / communication",
        "Communicators of one run. Transfer: what an operation takes for the member that comes last and "
        "waits "
        "for nobody; wait: what a member spends beyond that.",
        [
            SOURCE_VARIABLE,
            RUN_VARIABLE,
            GROUP_VARIABLE,
            COMMUNICATOR_VARIABLE,
            FILTERS_VARIABLE,
            RUNBOOKS_VARIABLE,
        ],
        others(COMMUNICATION, run=True),
        events=R,
    )
    communication.row("Links", *_links())
    communication.row("Transfer: the links", *_transfer())
    communication.row("Wait: late arrivers", *_wait())
    communication.row("Communicator $group_id", *_communicator())
    return communication


def _links() -> list[Draft]:
    return [
        findings(f'{R}, alertname="ArgusLinkDegraded"', "Alerts about links of this run.", width=12),
        table(
            "Slow communicators",
            "Communicators whose transfers take more than 1.5 times what like ones (or their own past) take; "
            "loss: the share of an iteration that it takes, from 2 % on.",
            "none",
            Query(
                f"topk(50, max by (op, group, group_id) (collective:argus_link_degraded:ratio{{{GROUPS}}}))"
            ),
            Query(f"topk(50, max by (op, group, group_id) (collective:argus_link_loss:ratio{{{GROUPS}}}))"),
            columns=[
                Column("group_id", link=to_communicator(cell("group_id"))),
                Column("Value #A", "times its like", limits=steps(("orange", None), ("red", 2))),
                Column("Value #B", "loss", "percentunit"),
            ],
            sort="loss",
        ),
        table(
            "Nodes where slow communicators meet",
            "Slow communicators that a node's ranks belong to, where two or more meet: its adapter or "
            "switch port is suspect.",
            "none",
            Query(f"topk(20, max by (node) (node:argus_links_degraded:count{{{R}}}))"),
            columns=[Column("Value", "slow communicators")],
            sort="slow communicators",
        ),
        number(
            "Communicators judged",
            "Communicators all of whose members report; only their links can be judged.",
            "none",
            Query(f"count(count by (op, group, group_id) (collective:argus_transfer_seconds:min{{{R}}}))"),
            width=6,
        ),
        number(
            "Not judged",
            "Communicators of which nobody told how many ranks belong to them, so that no link of theirs "
            "is judged.",
            "none",
            Query(f"max(run:argus_links_unjudged:count{{{R}}}) or vector(0)"),
            width=6,
            limits=steps(("green", None), ("orange", 1)),
        ),
    ]


def _transfer() -> list[Draft]:
    link = [to_communicator(label("group_id"))]
    transfer = f"collective:argus_transfer_seconds:min{{{GROUPS}}}"
    return [
        series(
            "Transfer by kind of group",
            "Typical and slowest communicator of each operation and kind of group. The two drift apart "
            "when one link is slow.",
            "s",
            Query(f"quantile by (op, group) (0.5, {transfer})", "{{op}} {{group}}, typical"),
            Query(f"max by (op, group) ({transfer})", "{{op}} {{group}}, slowest"),
            coarse=True,
        ),
        series(
            "Slowest transfers",
            f"The {MOST} communicators with the longest transfer of one operation.",
            "s",
            Query(
                f"topk({MOST}, max by (op, group, group_id) ({transfer}))",
                "{{op}} {{group_id}}",
            ),
            links=link,
            coarse=True,
        ),
        series(
            "Lowest bandwidth",
            f"The {MOST} communicators with the lowest best bandwidth of one operation, where payloads "
            "are known.",
            "Bps",
            Query(
                f"bottomk({MOST}, max by (op, group, group_id) "
                f"(collective:argus_bytes_per_second:max{{{GROUPS}}}))",
                "{{op}} {{group_id}}",
            ),
            links=link,
            coarse=True,
        ),
        series(
            "Bandwidth by kind of group",
            "Bandwidth of the typical communicator of each operation and kind of group.",
            "Bps",
            Query(
                f"quantile by (op, group) (0.5, collective:argus_bytes_per_second:max{{{GROUPS}}})",
                "{{op}} {{group}}",
            ),
            coarse=True,
        ),
    ]


def _wait() -> list[Draft]:
    link = [to_communicator(label("group_id"))]
    return [
        series(
            "Typical member's wait by kind of group",
            "How long the typical member of the typical communicator waits in one operation.",
            "s",
            Query(
                f"quantile by (op, group) (0.5, collective:argus_wait_seconds:median{{{GROUPS}}})",
                "{{op}} {{group}}",
            ),
            coarse=True,
        ),
        series(
            "Longest waits",
            f"The {MOST} communicators whose typical member waits longest: somebody in them comes late. "
            "Look at that member's compute and host phases, not at the link.",
            "s",
            Query(
                f"topk({MOST}, max by (op, group, group_id) "
                f"(collective:argus_wait_seconds:median{{{GROUPS}}}))",
                "{{op}} {{group_id}}",
            ),
            links=link,
            coarse=True,
        ),
    ]


def _communicator() -> list[Draft]:
    typical = f'argus_window_collective_seconds{{{CHOSEN}, quantile="0.5"}}'
    link = [to_rank(label("rank"))]
    return [
        series(
            "Transfer and wait",
            "Of the chosen communicator: transfer, the typical member's wait, and the longest.",
            "s",
            Query(f"max by (op) (collective:argus_transfer_seconds:min{{{CHOSEN}}})", "{{op}} transfer"),
            Query(f"max by (op) (collective:argus_wait_seconds:median{{{CHOSEN}}})", "{{op}} typical wait"),
            Query(f"max by (op) (collective:argus_wait_seconds:max{{{CHOSEN}}})", "{{op}} longest wait"),
            coarse=True,
        ),
        series(
            "Payload",
            "Bytes per second of the member that sends most.",
            "Bps",
            Query(
                f"max by (op) (rate(argus_collective_bytes_total{{{CHOSEN}}}[$__rate_interval]))", "{{op}}"
            ),
            coarse=True,
        ),
        series(
            "Who comes late",
            f"The {MOST} members with the shortest operations: the others wait for them.",
            "s",
            Query(f"bottomk({MOST}, max by (op, rank) ({typical}))", "{{op}} rank {{rank}}"),
            links=link,
            coarse=True,
        ),
        series(
            "Who waits",
            f"The {MOST} members with the longest operations: victims, not culprits.",
            "s",
            Query(f"topk({MOST}, max by (op, rank) ({typical}))", "{{op}} rank {{rank}}"),
            links=link,
            coarse=True,
        ),
        table(
            "Members",
            "Members of the chosen communicator: typical seconds and occurrences of an operation; the "
            "first hundred by lateness.",
            "none",
            Query(f"bottomk(100, max by (op, role, rank) ({typical}))"),
            Query(
                f"max by (op, role, rank) (argus_window_collective_occurrences{{{CHOSEN}}}) "
                f"and on (op, role, rank) bottomk(100, max by (op, role, rank) ({typical}))"
            ),
            columns=[
                Column("rank", link=to_rank(cell("rank"))),
                Column("Value #A", "typical operation", "s"),
                Column("Value #B", "in an iteration"),
            ],
            width=24,
        ),
    ]
