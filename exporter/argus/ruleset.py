"""The shipped rules: load them, and render them for another scrape interval.

The files under ``rules/`` are plain Prometheus rules for a scrape interval of
15 s. In them a duration of up to one minute counts scrapes (``for: 15s`` is one
scrape, ``[35s]`` reaches two scrapes back); a longer one is a time. Rendering
keeps that meaning: the former are scaled with the scrape interval, the latter
stay, but never fall below four scrapes. ``time_scale`` then compresses
everything, for recorded traces that are replayed faster than they happened.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

import yaml

NATIVE_INTERVAL = 15.0
"""Seconds between scrapes for which the shipped files are written."""

COUNTS_SCRAPES_UP_TO = 60.0
"""Seconds up to which a duration in the shipped files counts scrapes."""

LEAST_SCRAPES = 4
"""A longer duration never covers fewer scrapes than this, so that a missed one does not matter."""

RUNBOOK_BASE = "https://runbooks.example"
DASHBOARD_BASE = "https://grafana.example"
"""Placeholders in the shipped files (a domain reserved for examples)."""

_UNITS = {
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
    "y": 31_536_000_000,
}
_DURATION = r"(?:[0-9]+(?:ms|[smhdwy]))+"
# Strings and comments are passed over, so that nothing inside them is taken for a duration.
_TOKEN = re.compile(
    r"""(?P<skip>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|`[^`]*`|\#[^\n]*)"""
    rf"""|(?P<range>\[\s*(?P<length>{_DURATION})\s*(?::\s*(?P<step>{_DURATION})?\s*)?\])"""
    rf"""|(?P<offset>(?<![\w:])offset\s+-?\s*)(?P<shift>{_DURATION})(?!\w)""",
    re.VERBOSE | re.IGNORECASE,
)


class RulesetError(ValueError):
    """The rules can't be rendered as asked; the message says why."""


def parse_duration(text: str) -> float:
    """Seconds of a Prometheus duration such as ``1m30s``.

    Raises:
        RulesetError: It is no duration.
    """
    if not re.fullmatch(_DURATION, text):
        raise RulesetError(f"{text!r} is not a duration; write it like 15s, 1m30s or 500ms")
    return sum(int(n) * _UNITS[unit] for n, unit in re.findall(r"([0-9]+)(ms|[smhdwy])", text)) / 1000


def format_duration(seconds: float) -> str:
    """A Prometheus duration, to the millisecond and at least one of them (no zero, no fraction)."""
    left = max(1, round(seconds * 1000))
    parts = []
    for unit in ("d", "h", "m", "s", "ms"):
        count, left = divmod(left, _UNITS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)


def load() -> dict[str, str]:
    """The shipped rule files as they stand: file name -> text, sorted by name."""
    folder = resources.files("argus") / "rules"
    found = {item.name: item.read_text("utf-8") for item in folder.iterdir() if item.name.endswith(".yml")}
    if not found:
        raise RulesetError(
            "the rules are missing from this installation; install the package argus-gpu again"
        )
    return dict(sorted(found.items()))


def rescale_expression(expression: str, rescale: Callable[[float], float]) -> str:
    """A PromQL expression with ``rescale`` applied to its ranges, subquery steps and offsets (seconds)."""

    def replace(match: re.Match[str]) -> str:
        if match["skip"] is not None:
            return match[0]

        def scaled(text: str) -> str:
            return format_duration(rescale(parse_duration(text)))

        if match["range"] is not None:
            step = "" if ":" not in match[0] else ":" + (scaled(match["step"]) if match["step"] else "")
            return f"[{scaled(match['length'])}{step}]"
        return match["offset"] + scaled(match["shift"])

    return _TOKEN.sub(replace, expression)


@dataclass(frozen=True)
class Options:
    """How to render.

    Attributes:
        scrape_interval: Seconds between two scrapes; rules are evaluated as often.
        time_scale: Factor on every duration after that; 0.01 for a replay 100 times as fast.
        runbook_base: Where ``<alert>.md`` is found, without the last slash.
        dashboard_base: Address of Grafana, without the last slash.
        alert_labels: Added to every alert.
    """

    scrape_interval: float = NATIVE_INTERVAL
    time_scale: float = 1.0
    runbook_base: str = RUNBOOK_BASE
    dashboard_base: str = DASHBOARD_BASE
    alert_labels: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 < self.scrape_interval <= 60:
            # Prometheus forgets a sample after five minutes, and some groups run every fourth scrape.
            raise RulesetError(
                f"a scrape interval of {self.scrape_interval:g} s can't work; take 1 s to 60 s"
            )
        if not 0 < self.time_scale <= 1:
            raise RulesetError(f"time_scale is {self.time_scale}; it must be above 0 and at most 1")

    def rescale(self, seconds: float) -> float:
        """Seconds of a shipped duration -> seconds as rendered."""
        if seconds <= COUNTS_SCRAPES_UP_TO:
            seconds = seconds * self.scrape_interval / NATIVE_INTERVAL
        else:
            seconds = max(seconds, LEAST_SCRAPES * self.scrape_interval)
        return seconds * self.time_scale

    def link(self, text: str) -> str:
        """A link of the shipped files with the bases as asked."""
        for placeholder, base in ((RUNBOOK_BASE, self.runbook_base), (DASHBOARD_BASE, self.dashboard_base)):
            if text.startswith(placeholder + "/"):
                return base.rstrip("/") + text[len(placeholder) :]
        return text


def render_groups(text: str, options: Options) -> list[dict[str, Any]]:
    """The rule groups of one shipped file, rendered."""
    groups: list[dict[str, Any]] = yaml.safe_load(text)["groups"]
    return [
        {
            **group,
            "interval": format_duration(options.rescale(parse_duration(group["interval"]))),
            "rules": [_render_rule(rule, options) for rule in group["rules"]],
        }
        for group in groups
    ]


def _render_rule(rule: Mapping[str, Any], options: Options) -> dict[str, Any]:
    rendered = {**rule, "expr": rescale_expression(rule["expr"], options.rescale)}
    for key in ("for", "keep_firing_for"):
        if key in rule:
            rendered[key] = format_duration(options.rescale(parse_duration(rule[key])))
    if "alert" in rule:
        rendered["labels"] = {**rule.get("labels", {}), **options.alert_labels}
        rendered["annotations"] = {
            name: options.link(value) if name.endswith("_url") else value
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


def render_files(options: Options) -> dict[str, str]:
    """The shipped rules rendered, file by file: file name -> YAML text."""
    return {name: dump({"groups": render_groups(text, options)}) for name, text in load().items()}


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
    return [group for text in load().values() for group in render_groups(text, options)]


def render_joined(options: Options) -> str:
    """All rules as one rule file."""
    return dump({"groups": _all_groups(options)})


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
    return dump(
        {
            "apiVersion": "monitoring.coreos.com/v1",
            "kind": "PrometheusRule",
            "metadata": metadata,
            "spec": {"groups": _all_groups(options)},
        }
    )


def alerts() -> list[dict[str, Any]]:
    """Every alerting rule as shipped, in the order of the files."""
    return [
        rule
        for text in load().values()
        for group in yaml.safe_load(text)["groups"]
        for rule in group["rules"]
        if "alert" in rule
    ]


def runbook(alert: str) -> str:
    """The shipped runbook of an alert, as Markdown.

    Raises:
        RulesetError: There is no such alert.
    """
    known = {rule["alert"] for rule in alerts()}
    if alert not in known:
        raise RulesetError(f"there is no alert {alert!r}; there are {', '.join(sorted(known))}")
    return (resources.files("argus") / "runbooks" / f"{alert}.md").read_text("utf-8")


def meaning(alert: str) -> str:
    """What an alert means: the first sentence of its runbook."""
    paragraph = runbook(alert).partition("## Meaning")[2].strip().partition("\n\n")[0]
    return " ".join(paragraph.split()).partition(". ")[0].rstrip(".") + "."
