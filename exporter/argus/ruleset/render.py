"""The shipped rules for an installation's circumstances.

The files under ``rules/`` are plain Prometheus rules for a scrape interval of
15 s. In them a duration of up to one minute counts scrapes (``for: 15s`` is one
scrape, ``[35s]`` reaches two scrapes back); a longer one is a time. Rendering
keeps that meaning: the former are scaled with the scrape interval, the latter
stay, but never fall below four scrapes. Groups are evaluated as often as written,
but not more often than there are scrapes; where those come faster, groups follow.
A threshold that somebody chose is taken as it is. ``time_scale`` then compresses
everything, for recorded traces that are replayed faster than they happened.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from argus.ruleset import marks, parts, scope, shipped, thresholds
from argus.ruleset.durations import (
    format_duration,
    parse_duration,
    rescale_expression,
    rescale_template,
)
from argus.ruleset.errors import RulesetError

NATIVE_INTERVAL = 15.0
"""Seconds between scrapes for which the shipped files are written."""

COUNTS_SCRAPES_UP_TO = 60.0
"""Seconds up to which a duration in the shipped files counts scrapes."""

LEAST_SCRAPES = 4
"""A longer duration never covers fewer scrapes than this, so that a missed one does not matter."""

RUNBOOK_BASE = "https://runbooks.example"
DASHBOARD_BASE = "https://grafana.example"
"""Placeholders in the shipped files (a domain reserved for examples)."""


@dataclass(frozen=True)
class Options:
    """How to render.

    Attributes:
        scrape_interval: Seconds between two scrapes; rules are evaluated as often.
        time_scale: Factor on every duration after that; 0.01 for a replay 100 times as fast.
        runbook_base: Where ``<alert>.md`` is found, without the last slash.
        dashboard_base: Address of Grafana, without the last slash.
        alert_labels: Added to every alert.
        thresholds: Numbers of the rules by name (``thresholds.table``), where they are not as shipped.
        by: Labels beside ``run_id`` that tell runs apart (``scope.py``).
        part: The rules of a shard or of a global Prometheus (``parts.py``); None: all.
    """

    scrape_interval: float = NATIVE_INTERVAL
    time_scale: float = 1.0
    runbook_base: str = RUNBOOK_BASE
    dashboard_base: str = DASHBOARD_BASE
    alert_labels: Mapping[str, str] = field(default_factory=dict)
    thresholds: Mapping[str, str] = field(default_factory=dict)
    by: tuple[str, ...] = ()
    part: str | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.scrape_interval <= 60:
            # Prometheus forgets a sample after five minutes, and of four scrapes one may fail.
            raise RulesetError(
                f"a scrape interval of {self.scrape_interval:g} s can't work; take 1 s to 60 s"
            )
        if not 0 < self.time_scale <= 1:
            raise RulesetError(f"time_scale is {self.time_scale}; it must be above 0 and at most 1")
        # A frozen dataclass: this is its own way to keep what was checked.
        object.__setattr__(self, "thresholds", thresholds.checked(self.thresholds))
        scope.check(self.by)
        for label, value in self.alert_labels.items():
            scope.check_name(label)
            _check_plain(f"the alert label {label}", value)
        for base in (self.runbook_base, self.dashboard_base):
            _check_plain("the address", base)
        if self.part not in (None, *parts.PARTS):
            raise RulesetError(f"there is no part {self.part!r}; take {' or '.join(parts.PARTS)}")

    def rescale(self, seconds: float) -> float:
        """Seconds of a shipped duration -> seconds as rendered."""
        if seconds <= COUNTS_SCRAPES_UP_TO:
            seconds = seconds * self.scrape_interval / NATIVE_INTERVAL
        else:
            seconds = max(seconds, LEAST_SCRAPES * self.scrape_interval)
        return seconds * self.time_scale

    def interval(self, text: str) -> str:
        """The interval of a group of the shipped files as rendered."""
        seconds = parse_duration(text) * min(1.0, self.scrape_interval / NATIVE_INTERVAL)
        return format_duration(max(seconds, self.scrape_interval) * self.time_scale)

    def duration(self, text: str) -> str:
        """A duration of a key of the shipped files, mark included, as rendered."""
        rescaled = format_duration(self.rescale(parse_duration(marks.strip(text))))
        return self.with_thresholds(text.replace(marks.strip(text), rescaled, 1))

    def expression(self, text: str) -> str:
        """An expression of the shipped files as rendered."""
        return scope.widen(self.with_thresholds(rescale_expression(text, self.rescale)), self.by)

    def template(self, text: str) -> str:
        """An annotation of the shipped files as rendered."""
        return scope.widen_template(rescale_template(text, self.rescale), self.by)

    def with_thresholds(self, text: str) -> str:
        """The text with the chosen values."""
        return marks.replace(text, self._threshold)

    def _threshold(self, name: str, rendered: str) -> str:
        chosen = self.thresholds.get(name)
        if chosen is None:
            return rendered
        if not thresholds.find(name).is_duration:
            return chosen
        return format_duration(parse_duration(chosen) * self.time_scale)

    def link(self, text: str) -> str:
        """A link of the shipped files with the bases as asked."""
        for placeholder, base in ((RUNBOOK_BASE, self.runbook_base), (DASHBOARD_BASE, self.dashboard_base)):
            if text.startswith(placeholder + "/"):
                return base.rstrip("/") + text[len(placeholder) :]
        return text


def _check_plain(what: str, text: str) -> None:
    """Prometheus would take braces for a template."""
    if "{{" in text or not text.isprintable():
        raise RulesetError(f"{what} can't be {text!r}: no {{{{ and no line breaks")


def render_groups(text: str, options: Options) -> list[dict[str, Any]]:
    """The rule groups of one shipped file, rendered."""
    return [
        {
            **group,
            "interval": options.interval(group["interval"]),
            "rules": [_render_rule(rule, options) for rule in group["rules"]],
        }
        for group in parts.select(shipped.groups(text), options.part)
    ]


def _render_rule(rule: Mapping[str, Any], options: Options) -> dict[str, Any]:
    rendered = {**rule, "expr": options.expression(rule["expr"])}
    for key in ("for", "keep_firing_for"):
        if key in rule:
            rendered[key] = marks.strip(options.duration(rule[key]))
    if "alert" in rule:
        rendered["labels"] = {**rule.get("labels", {}), **options.alert_labels}
        rendered["annotations"] = {
            name: options.link(value) if name.endswith("_url") else options.template(value)
            for name, value in rule.get("annotations", {}).items()
        }
    return rendered


class _Dumper(yaml.SafeDumper):
    """Text of several lines as a block, no anchors: what a person can read and edit."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def dump(document: Any) -> str:
    """YAML text of a rendered document."""
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=100_000, allow_unicode=True)


def heading(options: Options, *texts: str) -> str:
    """What differs from the shipped rules, of what these files use; and which part of them they are."""
    used = {name for text in texts for name, _ in marks.marks(text)}
    changed = [
        f"#   {name}: {value} (default {thresholds.find(name).default})\n"
        for name, value in sorted(options.thresholds.items())
        if name in used
    ]
    part = f"# Rules of a {options.part} (argus rules --part {options.part}).\n" if options.part else ""
    return part + ("# Thresholds that differ from the defaults:\n" + "".join(changed) if changed else "")


def render_files(options: Options) -> dict[str, str]:
    """The shipped rules rendered, file by file: file name -> YAML text.  Files without rules are left out."""
    rendered = ((name, text, render_groups(text, options)) for name, text in shipped.load().items())
    return {
        name: heading(options, text) + dump({"groups": groups}) for name, text, groups in rendered if groups
    }


def render(
    scrape_interval: float = NATIVE_INTERVAL,
    time_scale: float = 1.0,
    runbook_base: str = RUNBOOK_BASE,
    dashboard_base: str = DASHBOARD_BASE,
    alert_labels: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The shipped rules for these circumstances (see :class:`Options`): file name -> YAML text.

    Raises:
        RulesetError: The circumstances make no sense.
    """
    return render_files(
        Options(scrape_interval, time_scale, runbook_base, dashboard_base, alert_labels or {})
    )


def _all_groups(options: Options) -> list[dict[str, Any]]:
    return [group for text in shipped.load().values() for group in render_groups(text, options)]


def render_joined(options: Options) -> str:
    """All rules as one rule file."""
    return heading(options, *shipped.load().values()) + dump({"groups": _all_groups(options)})


def render_operator(options: Options, name: str = "argus", labels: Mapping[str, str] | None = None) -> str:
    """All rules as one ``PrometheusRule`` object for the Prometheus operator.

    Args:
        options: How to render.
        name: Name of the object.
        labels: Its labels; most installations select rules by one, such as ``release``.
    """
    metadata: dict[str, Any] = {"name": name}
    if labels:
        metadata["labels"] = dict(labels)
    return heading(options, *shipped.load().values()) + dump(
        {
            "apiVersion": "monitoring.coreos.com/v1",
            "kind": "PrometheusRule",
            "metadata": metadata,
            "spec": {"groups": _all_groups(options)},
        }
    )
