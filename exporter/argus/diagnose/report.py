"""A verdict in words, for the terminal."""

from __future__ import annotations

import textwrap
from collections import defaultdict
from collections.abc import Iterator

from argus import ruleset
from argus.diagnose.verdict import NOBODY, SOMEBODY, Accusation, Verdict

_WIDTH = 100
_SHOWN = 20


def lines(verdict: Verdict) -> Iterator[str]:
    """The verdict, then the evidence, then what it costs, then what was not judged."""
    numbers = verdict.iterations
    yield (
        f"Run {verdict.run_id}: {verdict.ranks} ranks, {len(numbers)} iterations "
        f"({numbers[0]} to {numbers[-1]})."
    )
    yield ""
    yield from _wrap(_words(verdict))
    merged = _merge(verdict.alerts)
    for accusations in merged[:_SHOWN]:
        yield ""
        yield from _evidence(accusations)
    if len(merged) > _SHOWN:
        yield ""
        yield f"… and {len(merged) - _SHOWN} more (--json has them all)."
    if verdict.undecided:
        yield ""
        yield "Undecided, because the trace ends before the rules are sure:"
        for accusation in verdict.undecided[:_SHOWN]:
            yield from _wrap(f"{_summary(accusation)}, since iteration {accusation.first_iteration}", "  - ")
    yield ""
    yield from _cost(verdict)
    for title, items in (("Not judged", verdict.unjudged), ("Noticed while reading", verdict.skipped)):
        if items:
            yield f"{title}:"
            for item in items:
                yield from _wrap(item, "  - ")


def _words(verdict: Verdict) -> str:
    if verdict.status == NOBODY:
        return "Verdict: nobody is accused."
    if verdict.status == SOMEBODY:
        ranks = sorted({int(a.labels["rank"]) for a in verdict.alerts if a.labels.get("rank", "").isdigit()})
        if not ranks:
            said = sorted({_summary(alert).rstrip(".") for alert in verdict.alerts})
            return f"Verdict: no rank is at fault. {'; '.join(said)}."
        shown = ", ".join(map(str, ranks[:_SHOWN])) + (", …" if len(ranks) > _SHOWN else "")
        return (
            f"Verdict: rank {shown} slows the run."
            if len(ranks) == 1
            else f"Verdict: ranks {shown} slow the run."
        )
    return "Verdict: undecided, the trace is too short."


def _merge(alerts: list[Accusation]) -> list[list[Accusation]]:
    """Alerts of the same name and rank (or other subject) together, each phase once, the gravest first."""
    merged: dict[tuple[str, ...], dict[str, Accusation]] = defaultdict(dict)
    for alert in alerts:
        labels = alert.labels
        subject = tuple(
            f"{name}={labels[name]}" for name in sorted(labels) if name not in ("severity", "phase")
        )
        merged[subject].setdefault(labels.get("phase", ""), alert)
    return [list(by_phase.values()) for by_phase in merged.values()]


def _evidence(accusations: list[Accusation]) -> Iterator[str]:
    first = accusations[0]
    since = min(accusation.first_iteration for accusation in accusations)
    yield f"{first.name} ({first.severity}), since iteration {since}"
    for accusation in accusations:
        text = accusation.annotations.get("description") or _summary(accusation)
        yield from _wrap(" ".join(text.split()), "  ")
    url = first.annotations.get("runbook_url", "")
    if url.startswith(ruleset.RUNBOOK_BASE):
        yield f"  What to do: argus rules --runbook {first.name}"
    elif url:
        yield f"  What to do: {url}"


def _summary(accusation: Accusation) -> str:
    text = accusation.annotations.get("summary") or accusation.name
    return " ".join(text.split())


def _cost(verdict: Verdict) -> Iterator[str]:
    if verdict.slowdown is not None:
        yield from _wrap(
            f"Estimated slowdown: {verdict.slowdown:.2f} times as long as without the culprit's excess "
            "(a replay of the schedule, see docs/diagnose.md)."
        )
    if verdict.lost_gpu_hours >= 0.0005:
        yield f"Lost to the busiest rank of a role: {verdict.lost_gpu_hours:.3f} GPU-hours in this trace."


def _wrap(text: str, first: str = "") -> list[str]:
    rest = " " * len(first)
    return textwrap.wrap(text, _WIDTH, initial_indent=first, subsequent_indent=rest) or [first.rstrip()]
