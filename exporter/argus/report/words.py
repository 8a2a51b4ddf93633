"""Numbers and alerts in words."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from urllib.parse import quote_plus

from argus.report.model import Finding

_ACTION = re.compile(
    r"\{\{-?\s*\$(?P<what>labels\.(?P<label>\w+)|value)\s*"
    r"(?:\|\s*(?P<filter>urlquery|humanizeDuration|humanizePercentage|printf\s+\"%\.(?P<digits>\d)f\"))?\s*-?\}\}"
)
_LIVENESS_FIRST = ("ArgusHangSuspect", "ArgusRunHung", "ArgusRankDown", "ArgusRanksMissing")
_SHOWN = 12


def rank_number(text: str) -> int | None:
    """The rank that a label's text names; None where it is no number of a rank."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def rank_order(text: str) -> tuple[bool, int, str]:
    """To sort texts of ranks: numbers first, by size."""
    number = rank_number(text)
    return number is None, number or 0, text


def seconds(value: float) -> str:
    """A duration with three digits and a fitting unit; NaN is not known."""
    if value != value:
        return "unknown"
    if value == 0 or value >= 1e6:
        return f"{value:.3g} s"
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= size:
            return f"{value / size:.3g} {unit}" if value < 1000 * size else f"{value:.0f} s"
    return f"{value * 1e9:.0f} ns"


def expand(template: str, labels: dict[str, str], value: float | None) -> str | None:
    """An annotation with labels and value filled in; None where it holds more than that.

    Prometheus expands annotations for alerts that fire now and remembers none of the past, so those of
    the past are expanded here.  The shipped summaries and addresses use labels, ``$value`` and the
    filters ``printf "%.Nf"``, ``humanizeDuration``, ``humanizePercentage`` and ``urlquery`` only.
    """
    unknown = False

    def replace(match: re.Match[str]) -> str:
        nonlocal unknown
        if match["label"] is not None:
            text = labels.get(match["label"], "")
            return quote_plus(text) if match["filter"] == "urlquery" else text
        if value is None:
            unknown = True
            return ""
        if match["digits"] is not None:
            return f"{value:.{match['digits']}f}"
        if match["filter"] == "humanizeDuration":
            return seconds(value)
        if match["filter"] == "humanizePercentage":
            return f"{100 * value:.4g}%"
        return f"{value:g}"

    text = _ACTION.sub(replace, template)
    return None if unknown or "{{" in text else " ".join(text.split())


def numbers(ranks: Iterable[str]) -> str:
    """Rank numbers, consecutive ones joined: ``3, 8-11``, then what is no number; the first dozen pieces."""
    texts = sorted(set(ranks), key=rank_order)
    named = [text for text in texts if rank_number(text) is None]
    pieces: list[list[int]] = []
    for number in sorted({number for text in texts if (number := rank_number(text)) is not None}):
        if pieces and number == pieces[-1][1] + 1:
            pieces[-1][1] = number
        else:
            pieces.append([number, number])
    shown = [str(low) if low == high else f"{low}-{high}" for low, high in pieces] + named
    return ", ".join(shown[:_SHOWN]) + (", …" if len(shown) > _SHOWN else "")


def grouped(findings: list[Finding]) -> list[list[Finding]]:
    """Findings of one alert about one subject together, each phase once and the gravest first.

    ``findings`` are ordered; the groups keep that order.
    """
    groups: dict[tuple[tuple[str, str], ...], dict[str, Finding]] = {}
    for finding in findings:
        subject = {k: v for k, v in finding.labels.items() if k not in ("severity", "phase")}
        group = groups.setdefault(tuple(sorted(subject.items())), {})
        group.setdefault(finding.labels.get("phase", ""), finding)
    return [list(group.values()) for group in groups.values()]


def alike(groups: list[list[Finding]]) -> list[list[list[Finding]]]:
    """Groups that say the same of others (same alert, same phases) together, in their order."""
    clusters: dict[tuple[str, ...], list[list[Finding]]] = {}
    for group in groups:
        phases = sorted(finding.labels.get("phase", "") for finding in group)
        clusters.setdefault((group[0].name, group[0].severity, *phases), []).append(group)
    return list(clusters.values())


def verdict(findings: list[Finding]) -> str:
    """One or two sentences: who or what is at fault, or that nobody is."""
    accused = [finding for finding in findings if finding.severity != "info"]
    if not accused:
        return "Nobody is accused."
    slow: dict[str, set[str]] = defaultdict(set)
    for finding in accused:
        if finding.name in ("ArgusComputeStraggler", "ArgusHostStall"):
            slow[finding.rank].add(finding.labels.get("phase", ""))
    ranks_by_phases: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for rank, phases in slow.items():
        ranks_by_phases[tuple(sorted(phases))].append(rank)
    said = []
    for names, ranks in sorted(ranks_by_phases.items(), key=lambda item: (-len(item[1]), item[0])):
        said.append(
            f"{'Rank' if len(ranks) == 1 else 'Ranks'} {numbers(ranks)} "
            f"{'is' if len(ranks) == 1 else 'are'} slow in {'phase' if len(names) == 1 else 'phases'} "
            f"{' and '.join(filter(None, (', '.join(names[:-1]), names[-1])))}."
        )
    others = [f for f in accused if f.name not in ("ArgusComputeStraggler", "ArgusHostStall")]
    others.sort(key=lambda finding: (finding.name not in _LIVENESS_FIRST, finding.since))
    summaries = list(dict.fromkeys(finding.summary.rstrip(".") + "." for finding in others))
    room = max(1, 3 - len(said))
    said += summaries[:room]
    if len(summaries) > room:
        said.append(f"And {len(summaries) - room} more, listed below.")
    return " ".join(said)
