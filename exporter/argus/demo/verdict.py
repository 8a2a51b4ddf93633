"""Is what was delivered what should have been?"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from argus.demo.control import Fault

ALERT_OF_PHASE = {
    "forward": "ArgusComputeStraggler",
    "backward": "ArgusComputeStraggler",
    "data_loading": "ArgusHostStall",
}


@dataclass(frozen=True)
class Accusation:
    """One alert, by the labels that tell it from others."""

    alert: str
    rank: str
    phase: str

    def __str__(self) -> str:
        return " ".join(
            part
            for part in (self.alert, self.rank and f"rank {self.rank}", self.phase and f"phase {self.phase}")
            if part
        )


def expected(fault: Fault) -> Accusation:
    """The one accusation that a fault deserves."""
    return Accusation(ALERT_OF_PHASE[fault.phase], str(fault.rank), fault.phase)


def accusation(alert: dict[str, Any]) -> Accusation:
    """What an alert, as Prometheus or Alertmanager has it, accuses."""
    labels = alert["labels"]
    return Accusation(labels["alertname"], labels.get("rank", ""), labels.get("phase", ""))


def delivered(payloads: Iterable[Any]) -> dict[Accusation, dict[str, Any]]:
    """Alerts that fire in any of the notifications, the newest state of each."""
    return {
        accusation(alert): alert
        for payload in payloads
        for alert in payload["alerts"]
        if alert["status"] == "firing"
    }


def describe(alert: dict[str, Any], width: int = 96) -> str:
    """The alert as a person gets it."""
    labels, annotations = alert["labels"], alert["annotations"]
    rows = [("alert", f"{labels['alertname']} ({labels.get('severity', '?')})")]
    rows += [(name, labels[name]) for name in ("run_id", "role", "rank", "phase") if name in labels]
    rows += [
        (name.removesuffix("_url"), text) for name, text in annotations.items() if name != "dashboard_url"
    ]
    lines = []
    for name, text in rows:
        wrapped = textwrap.wrap(" ".join(text.split()), width, break_long_words=False, break_on_hyphens=False)
        lines += [f"  {name if not i else '':<12} {line}" for i, line in enumerate(wrapped)]
    return "\n".join(lines)
