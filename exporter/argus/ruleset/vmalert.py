"""The shipped rules for vmalert, in whose groups a rule doesn't see what the rule above it has just recorded.

vmalert evaluates the rules of a group one after the other like Prometheus, but
what they record can be read only at the next evaluation.  A rule that joins
fresh series with recorded ones would compare two moments, and when all ranks
change speed together it would accuse those that are fresh.  So each rule
looks back, by ``offset``, to the latest moment of which it can know everything:
the one that the last of its inputs stands for.  What a chain of rules says is
then exactly what Prometheus says, one evaluation later for each link.

``keep_firing_for`` is written out as well, for older versions (1.79) refuse
it: a rule records the alert's condition, and an alert that fires goes on as long
as the record says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from argus.ruleset import shipped
from argus.ruleset.durations import DURATION, format_duration, parse_duration
from argus.ruleset.errors import RulesetError
from argus.ruleset.render import Options, dump, heading, render_groups

CONDITION = "alert:argus_condition:max"
"""Where the conditions of alerts are recorded."""

_FIRED = 2.5
"""Evaluations within which an alert that fires has told so: the last one may have failed."""

_BLANK = r"(?:\s|\#[^\n]*\n)*"
_STRING = r'"(?:\\.|[^"\\])*"'
# A metric with what belongs to it: {labels}, [range], offset.  Strings and comments are passed over.
_SELECTOR = re.compile(
    rf"""(?P<skip>{_STRING}|\#[^\n]*)
    |(?P<name>(?<![\w:])(?:argus_\w+|\w+:[\w:]+|up)(?![\w:(]))
     (?P<rest>(?:\s*\{{(?:{_STRING}|[^}}"])*\}})?(?:{_BLANK}\[[^\]]*\])?)
     (?:(?P<shift>{_BLANK}offset\s+)(?P<offset>{DURATION}))?""",
    re.VERBOSE,
)
_LABELS = re.compile(r"max by \(([^)]*)\)")


def render_vmalert(options: Options) -> dict[str, str]:
    """The shipped rules for vmalert, file by file: file name -> YAML text.  Files without rules are left out.

    Raises:
        RulesetError: A rule is not in the shape that shipped rules have.
    """
    files = {name: (text, render_groups(text, options)) for name, text in shipped.load().items()}
    delays: dict[str, float] = {}
    for _, groups in files.values():
        for group in groups:
            delays.update(_delays(group))
    return {
        name: heading(options, text) + dump({"groups": [_group(group, delays) for group in groups]})
        for name, (text, groups) in files.items()
        if groups
    }


def _interval(group: Mapping[str, Any]) -> float:
    return parse_duration(group["interval"])


def _names(expression: str) -> set[str]:
    return {match["name"] for match in _SELECTOR.finditer(expression) if match["name"]}


def _delay(expression: str, known: Mapping[str, float], interval: float) -> float:
    """Seconds between the moment of which this expression can know all and its evaluation.

    Args:
        expression: Of a rule.
        known: The same of series that rules further up in its group record.
        interval: Seconds between evaluations of the group.
    """
    return max((known[name] + interval for name in _names(expression) if name in known), default=0.0)


def _delays(group: Mapping[str, Any]) -> dict[str, float]:
    """How old, in seconds, the moment is that a series stands for when it is recorded."""
    known: dict[str, float] = {}
    for rule in group["rules"]:
        if "record" in rule:
            delay = _delay(rule["expr"], known, _interval(group))
            known[rule["record"]] = max(delay, known.get(rule["record"], 0.0))
    return known


def _group(group: Mapping[str, Any], delays: Mapping[str, float]) -> dict[str, Any]:
    """A group with its rules at one moment each; ``delays`` are those of all groups."""
    interval = _interval(group)
    known: dict[str, float] = {}
    rules: list[dict[str, Any]] = []
    for rule in group["rules"]:
        delay = _delay(rule["expr"], known, interval)

        def ago(name: str, delay: float = delay) -> float:
            return max(0.0, delay - delays.get(name, 0.0))

        aligned = {**rule, "expr": _shifted(rule["expr"], ago)}
        if "record" in rule:
            known[rule["record"]] = delays[rule["record"]]
            rules.append(aligned)
        else:
            rules += _kept(aligned, interval)
    # Without it, queries see nothing younger than 30 s (-search.latencyOffset).
    return {**group, "params": {"nocache": ["1"]}, "rules": rules}


def _shifted(expression: str, ago: Callable[[str], float]) -> str:
    """The expression with every series read so many seconds earlier."""

    def shift(match: re.Match[str]) -> str:
        if match["skip"] is not None:
            return match[0]
        seconds = ago(match["name"])
        if not seconds:
            return match[0]
        own = parse_duration(match["offset"]) if match["offset"] else 0.0
        between = match["shift"] or " offset "
        return f"{match['name']}{match['rest']}{between}{format_duration(seconds + own)}"

    return _SELECTOR.sub(shift, expression)


def _kept(rule: Mapping[str, Any], interval: float) -> Iterable[dict[str, Any]]:
    """An alert without ``keep_firing_for``, and the rule that records its condition, to the same effect."""
    if "keep_firing_for" not in rule:
        return [dict(rule)]
    labels = _LABELS.match(rule["expr"])
    if labels is None:
        raise RulesetError(f"the expression of {rule['alert']} does not begin with its labels, max by (…)")
    severity = rule["labels"]["severity"]
    this = f'alertname="{rule["alert"]}", severity="{severity}"'
    fired = format_duration(_FIRED * interval)
    alert = {key: value for key, value in rule.items() if key != "keep_firing_for"}
    alert["expr"] = (
        f"({rule['expr']}\n) or max by ({labels[1]}) (\n"
        f"  last_over_time({CONDITION}{{{this}}}[{rule['keep_firing_for']}])\n"
        f'  and on ({labels[1]}) last_over_time(ALERTS{{{this}, alertstate="firing"}}[{fired}]))'
    )
    return [
        {
            "record": CONDITION,
            "expr": rule["expr"],
            "labels": {"alertname": rule["alert"], "severity": severity},
        },
        alert,
    ]
