"""Which rules a shard evaluates, and which a global Prometheus, where one can't hold the whole job.

A shard holds whole roles: every rank of a role, so that medians, quantiles and
outliers among peers are whole there. What compares roles, or counts the ranks
of a run, is global; it reads what shards recorded and a few series of each rank
(:func:`selectors`), by federation or remote write. Links between stages cross
shards too: the same rules judge them globally, on the series of group ``pp``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from argus.ruleset import marks

PARTS = ("shard", "global")

GLOBAL_GROUPS = ("argus-liveness", "argus-hang", "argus-l2-pipeline")
"""Of these a shard evaluates nothing but what ``BOTH`` and ``SHARD`` name."""

BOTH_GROUPS = (
    "argus-l2-communicators",
    "argus-l2-wait",
    "argus-l2-link",
    "argus-l2-link-nodes",
)

SHARD = ("instance:argus_ranks:count", "ArgusExporterDown", "rank:argus_slow_part:ratio")
"""Of the global groups: exporters are scraped by shards, and ranks compared with their peers."""

GLOBAL = (
    "run:argus_window_iteration_seconds:cv",
    "run:argus_window_iteration_seconds:smoothed",
    "run:argus_iteration_good_seconds:past",
    "run:argus_iteration_regression:ratio",
    "run:argus_iteration_chance:ratio",
    "run:argus_window_iteration_seconds:moving",
    "run:argus_iteration_slow:ratio",
    "run:argus_iteration_slow:moving",
    "run:argus_iteration_slow:share",
    "ArgusIterationRegression",
    "rank:argus_iteration_spike_seconds:worst",
    "run:argus_iteration_spike:ratio",
    "run:argus_iteration_jitter:ratio",
    "ArgusIterationJitter",
    "run:argus_stage_reference_seconds:median",
    "role:argus_stage_busy:ratio",
    "role:argus_stage_excess_seconds:min",
    "ArgusStageImbalance",
)
"""Of the other groups."""

BOTH = (
    "run:argus_attempt:max",
    "rank:argus_attempt:outdated",
    "rank:argus_rank_claims:count",
    "run:argus_world_size:max",
    "run:argus_window_iteration_seconds:median",
    "run:argus_window_iteration_seconds:worst",
    "run:argus_lost_gpus:max",
    "instance:argus_ranks:count",
)
"""What a shard makes of its own roles, and the global Prometheus of all."""

_LINKS = (
    "argus_collective_members",
    "argus_collective_nodes",
    "argus_window_collective_bytes_per_second",
    "argus_window_collective_occurrences",
    "argus_window_collective_seconds",
)
_METRIC = re.compile(r"(?<![\w:])((?:[a-z_]+:)?argus_\w+(?::\w+)?|up)(?=[{\s),\[]|$)")


def name_of(rule: dict[str, Any]) -> str:
    """The series that a rule records, or its alert."""
    name: str = rule.get("record") or rule["alert"]
    return name


def belongs(group: str, rule: dict[str, Any], part: str) -> bool:
    """Whether a rule of a group is evaluated in this part."""
    name = name_of(rule)
    if name in BOTH or group in BOTH_GROUPS:
        return True
    everywhere_else = name in SHARD if group in GLOBAL_GROUPS else name not in GLOBAL
    return everywhere_else == (part == "shard")


def select(groups: Iterable[dict[str, Any]], part: str | None) -> list[dict[str, Any]]:
    """The groups of a part, without those that have no rule there; None: all."""
    if part is None:
        return list(groups)
    chosen = (
        {**group, "rules": [rule for rule in group["rules"] if belongs(group["name"], rule, part)]}
        for group in groups
    )
    return [group for group in chosen if group["rules"]]


def reads(rule: dict[str, Any]) -> set[str]:
    """Names of the series that a rule and the queries of its annotations read."""
    queries = [marks.strip(rule["expr"])]
    for annotation in rule.get("annotations", {}).values():
        queries += re.findall(r'printf "((?:\\.|[^"\\])*)"[^|}]*\| query', annotation)
    bare = (re.sub(r'\\?"[^"]*"', "", query) for query in queries)
    return {name for query in bare for name in _METRIC.findall(query)}


def selectors(groups: Iterable[dict[str, Any]]) -> list[str]:
    """What a global Prometheus needs from its shards, as selectors of series.

    Args:
        groups: All groups of all files.
    """
    rules = [rule for group in select(groups, "global") for rule in group["rules"]]
    recorded = {name_of(rule) for rule in rules}
    needed = set().union(*map(reads, rules)) - recorded
    whole = sorted(needed - {*_LINKS, "up"})
    raw = [name for name in whole if ":" not in name and not name.startswith("argus_window_")]
    windows = [name for name in whole if name.startswith("argus_window_")]
    made = [name for name in whole if ":" in name]
    return [
        f'{{__name__=~"{"|".join(raw)}"}}',
        f'{{__name__=~"{"|".join(windows)}", quantile!="0.0"}}',
        f'{{__name__=~"{"|".join(name for name in _LINKS if name in needed)}", group="pp"}}',
        f'{{__name__=~"{"|".join(made)}"}}',
        'up{job=~".*argus.*"}',
    ]
