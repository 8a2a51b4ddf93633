"""Labels beside ``run_id`` that tell runs apart, such as ``cluster``.

Where the series of several clusters meet in one Prometheus, two of them may
have a run of the same name, or an instance of the same address. Every clause
that goes by the run or the instance then goes by these labels too, and every
query of an annotation asks for the alert's own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from argus import catalogue
from argus.ruleset.errors import RulesetError

_CLAUSE = re.compile(r"\b(?P<word>by|on)\s*\((?P<labels>[^()]*\b(?:run_id|instance)\b[^()]*)\)")
_STRING = re.compile(r'"(?:\\.|[^"\\])*"')
_ACTION = re.compile(r"\{\{.*?\}\}", re.DOTALL)
_MADE = (
    "job", "instance", "quantile", "le", "alertname", "alertstate", "severity",
    "trouble", "nodes", "part", "term", "area", "clock",
)  # fmt: skip
TAKEN = frozenset((*_MADE, *(label for metric in catalogue.METRICS for label in metric.labels)))
"""Labels that mean something in the rules already: those of the metrics, of scrapers, and of rules."""


def check_name(label: str) -> None:
    """Whether a label may have this name.

    Raises:
        RulesetError: It is none, or is taken.
    """
    if not re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", label) or label.startswith("__"):
        raise RulesetError(f"{label!r} is no name of a label; take letters, digits and _")
    if label in TAKEN:
        raise RulesetError(f"the label {label!r} is there already, and means something else; take another")


def check(labels: Sequence[str]) -> None:
    """Whether these can be such labels.

    Raises:
        RulesetError: One of them can't.
    """
    for label in labels:
        check_name(label)
        if labels.count(label) > 1:
            raise RulesetError(f"the label {label!r} is named twice")


def widen(expression: str, labels: Sequence[str]) -> str:
    """An expression whose ``by`` and ``on`` clauses of runs and instances hold these labels as well."""
    if not labels:
        return expression
    more = "".join(f", {label}" for label in labels)

    def outside(text: str) -> str:
        return _CLAUSE.sub(lambda match: f"{match['word']} ({match['labels']}{more})", text)

    # Strings stay: a clause in a label's value is none.
    parts, last = [], 0
    for string in _STRING.finditer(expression):
        parts += [outside(expression[last : string.start()]), string[0]]
        last = string.end()
    return "".join([*parts, outside(expression[last:])])


def widen_template(annotation: str, labels: Sequence[str]) -> str:
    """An annotation whose queries ask for the alert's own values of these labels."""
    if not labels:
        return annotation
    selectors = "".join(f"{label}=%q, " for label in labels)
    arguments = "".join(f"$labels.{label} " for label in labels)
    more = "".join(f", {label}" for label in labels)

    def action(match: re.Match[str]) -> str:
        text = match[0]
        if "printf" not in text:
            return text
        text = _CLAUSE.sub(lambda clause: f"{clause['word']} ({clause['labels']}{more})", text)
        if "run_id=%q" not in text and "instance=%q" not in text:
            return text
        text = re.sub(r"\b(run_id|instance)=%q", rf"{selectors}\1=%q", text)
        return re.sub(r"\$labels\.(run_id|instance)\b", rf"{arguments}$labels.\1", text)

    return _ACTION.sub(action, annotation)
