"""Alerts followed from beat to beat: since when, whether they fired, what they said."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

AlertKey = tuple[tuple[str, str], ...]


@dataclass
class Alert:
    """An alert through the run; beats count pages from 1.

    Attributes:
        labels, annotations: As Alertmanager would get them, latest firing first.
        since: Beat since which its condition holds, without a break, or held before it fired.
        fired: Beat at which it fired first; None: it never did.
        active: Its condition holds at the last beat.
    """

    labels: dict[str, str]
    annotations: dict[str, str]
    since: int
    fired: int | None = None
    active: bool = True


@dataclass
class History:
    """Alerts by their labels, followed from beat to beat."""

    alerts: dict[AlertKey, Alert] = field(default_factory=dict)

    def take(self, beat: int, current: list[dict[str, Any]]) -> None:
        """Take in what ``/api/v1/alerts`` says after the evaluation of a beat."""
        seen = set()
        for item in current:
            key = tuple(sorted(item["labels"].items()))
            seen.add(key)
            alert = self.alerts.get(key)
            if alert is None:
                alert = self.alerts[key] = Alert(item["labels"], item["annotations"], beat)
            elif not alert.active and alert.fired is None:
                alert.since = beat
            alert.active = True
            if item["state"] == "firing":
                alert.fired = alert.fired or beat
            if item["state"] == "firing" or alert.fired is None:
                alert.annotations = item["annotations"]
        for key, alert in self.alerts.items():
            if key not in seen:
                alert.active = False
