"""Which alerts fired in a span, and what they said."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from argus import ruleset
from argus.prometheus import Client, QueryError, Sample
from argus.report.model import Axis, Finding
from argus.report.words import expand
from argus.severity import grave


def selector(run_id: str) -> str:
    """A label matcher; PromQL's strings are escaped like those of JSON."""
    return f"run_id={json.dumps(run_id, ensure_ascii=False)}"


def findings(client: Client, run_id: str, axis: Axis) -> list[Finding]:
    """The alerts of a run that fired within the span, the gravest and oldest first.

    Raises:
        argus.prometheus.QueryError: Prometheus does not answer.
    """
    mine = selector(run_id)
    firing = client.query_range(f'ALERTS{{{mine}, alertstate="firing"}}', axis.start, axis.end, axis.step)
    if not firing:
        return []
    since = {
        _key(course.labels): float(course.values[0])
        for course in client.query_range(
            f"min_over_time(ALERTS_FOR_STATE{{{mine}}}[{ruleset.format_duration(max(axis.step, 60))}])",
            axis.start,
            axis.end,
            axis.step,
        )
    }
    rules, now = _rules(client), _now(client)
    values: dict[tuple[str, float], list[Sample]] = {}
    found = []
    for course in firing:
        labels = {k: v for k, v in course.labels.items() if k not in ("__name__", "alertstate")}
        last = float(course.times[-1])
        ongoing = last > axis.end - 2 * axis.step
        key = _key(course.labels)
        annotations = now[key] if ongoing and key in now else _past(client, rules, labels, last, values)
        found.append(
            Finding(
                labels,
                since=since.get(key, float(course.times[0])),
                until=None if ongoing else last,
                summary=" ".join(annotations.get("summary", "").split()) or labels["alertname"],
                description=" ".join(annotations.get("description", "").split()),
                runbook=_real(annotations.get("runbook_url", ""), ruleset.RUNBOOK_BASE),
                dashboard=_real(annotations.get("dashboard_url", ""), ruleset.DASHBOARD_BASE),
            )
        )
    return sorted(found, key=order)


def order(finding: Finding) -> tuple[int, float, str]:
    """The gravest first, then the oldest."""
    return grave(finding.severity), finding.since, str(sorted(finding.labels.items()))


def _key(labels: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((k, v) for k, v in labels.items() if k not in ("__name__", "alertstate")))


def _now(client: Client) -> dict[tuple[tuple[str, str], ...], dict[str, str]]:
    """Annotations of the alerts that fire now; none where this server has series only."""
    try:
        alerts = client.alerts()
    except QueryError:
        return {}
    return {_key(alert["labels"]): alert["annotations"] for alert in alerts if alert["state"] == "firing"}


def _rules(client: Client) -> dict[tuple[str, str], dict[str, Any]]:
    """Alerting rules by name and severity; none where this server has series only."""
    try:
        groups = client.rules()
    except QueryError:
        return {}
    return {
        (rule["name"], rule.get("labels", {}).get("severity", "")): rule
        for group in groups
        for rule in group["rules"]
        if rule["type"] == "alerting"
    }


def _past(
    client: Client,
    rules: dict[tuple[str, str], dict[str, Any]],
    labels: dict[str, str],
    last: float,
    values: dict[tuple[str, float], list[Sample]],
) -> dict[str, str]:
    """Annotations of an alert that is over, as far as labels and value can tell.

    Args:
        values: What expressions were, by moment; it is filled.
    """
    rule = rules.get((labels["alertname"], labels.get("severity", "")))
    if rule is None:
        return {}
    templates = rule["annotations"]
    value = None
    if "$value" in templates.get("summary", ""):
        if (rule["query"], last) not in values:
            values[rule["query"], last] = _values(client, rule["query"], last)
        value = _value(values[rule["query"], last], labels)
    expanded = {
        name: expand(text, labels, value) for name, text in templates.items() if name != "description"
    }
    return {name: text for name, text in expanded.items() if text is not None}


def _values(client: Client, query: str, last: float) -> list[Sample]:
    """What an alert's expression was when it fired last; the alert may have outlived it a little."""
    try:
        return client.query(f"last_over_time(({query})[5m:15s])", last)
    except QueryError:
        return []


def _value(samples: list[Sample], labels: dict[str, str]) -> float | None:
    """The value of the alert with these labels."""
    for sample in samples:
        own = {k: v for k, v in sample.labels.items() if k != "__name__"}
        if all(labels.get(name) == text for name, text in own.items()) and np.isfinite(sample.value):
            return sample.value
    return None


def _real(address: str, placeholder: str) -> str:
    return "" if address.startswith(placeholder) else address
