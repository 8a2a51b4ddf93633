"""Who stands out, against its peers."""

from __future__ import annotations

import json
from collections import defaultdict

import numpy as np

from argus.prometheus import Client
from argus.report.model import Comparison, Document, Finding, Floats, Mark
from argus.report.words import rank_order

_SHOWN = 4
_MARKED = 12


def comparisons(client: Client, mine: str, document: Document) -> list[Comparison]:
    """The accused against their peers; in a healthy run its longest phase, to show how equal all are."""
    slow: dict[tuple[str, str], list[Finding]] = defaultdict(list)
    links: dict[tuple[str, str], list[Finding]] = defaultdict(list)
    for finding in document.accused:
        labels = finding.labels
        if "phase" in labels and "rank" in labels:
            slow[labels.get("role", ""), labels["phase"]].append(finding)
        elif "group_id" in labels:
            links[labels.get("op", ""), labels.get("group", "")].append(finding)
    made = [_ranks(client, mine, document, role, phase, fs) for (role, phase), fs in _most(slow)]
    made += [_links(client, mine, document, op, group, fs) for (op, group), fs in _most(links)]
    if not document.accused:
        made += _healthy(document)
    made = [comparison for comparison in made if len(comparison.values)]
    made.sort(key=lambda comparison: -len(comparison.accused))
    return made[:_SHOWN]


def _most(accused: dict[tuple[str, str], list[Finding]]) -> list[tuple[tuple[str, str], list[Finding]]]:
    """Where most are accused; to ask for more would take long, and they would not be shown."""
    return sorted(accused.items(), key=lambda item: -len(item[1]))[:_SHOWN]


def _ranks(
    client: Client, mine: str, document: Document, role: str, phase: str, accused: list[Finding]
) -> Comparison:
    values = _peers(document, role, phase)
    marks = []
    for rank in sorted({finding.rank for finding in accused}, key=rank_order)[:_MARKED]:
        samples = client.query(
            f"argus_window_phase_seconds{{{mine}, rank={json.dumps(rank)}, phase={json.dumps(phase)}}}",
            document.moment,
        )
        by_quantile = {s.labels.get("quantile"): s.value for s in samples if np.isfinite(s.value)}
        if {"0.0", "0.5", "1.0"} <= set(by_quantile):
            marks.append(Mark(f"rank {rank}", by_quantile["0.0"], by_quantile["0.5"], by_quantile["1.0"]))
    return Comparison(f"Phase {phase}, role {role}: seconds per iteration", values, marks)


def _peers(document: Document, role: str, phase: str) -> Floats:
    if phase not in document.phases.names:
        return np.array([])
    column = document.phases.seconds[:, document.phases.names.index(phase)]
    own: Floats = column[np.array(document.ranks.roles) == role]
    return own[~np.isnan(own)]


def _links(
    client: Client, mine: str, document: Document, op: str, group: str, accused: list[Finding]
) -> Comparison:
    samples = client.query(
        f"collective:argus_transfer_seconds:min{{{mine}, op={json.dumps(op)}, group={json.dumps(group)}}}",
        document.moment,
    )
    named = {finding.labels["group_id"] for finding in accused}
    samples = [sample for sample in samples if np.isfinite(sample.value)]
    marks = [
        Mark(sample.labels["group_id"], sample.value, sample.value, sample.value)
        for sample in samples
        if sample.labels["group_id"] in named
    ]
    title = f"{op} in communicators of kind {group}: seconds of the transfer itself"
    return Comparison(title, np.array([sample.value for sample in samples]), marks[:_MARKED])


def _healthy(document: Document) -> list[Comparison]:
    phases = document.phases
    made: list[Comparison] = []
    for name, kind in zip(phases.names, phases.kinds, strict=True):
        if kind == "compute" and not made and len(document.ranks):
            role = document.ranks.roles[0]
            made.append(
                Comparison(
                    f"Phase {name}, role {role}: seconds per iteration", _peers(document, role, name), []
                )
            )
    return made
