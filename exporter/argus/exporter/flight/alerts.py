"""Alertmanager's webhook: which ranks of which runs its alerts accuse.

Source of the format: Alertmanager's documentation, ``webhook_config``, version
4.  The body comes from the network and is not trusted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

MAX_BYTES = 8 << 20
"""Of one delivery; the example's 500 alerts need about one."""
_WANTED = "this address takes the deliveries of an Alertmanager's webhook"
_MOST_ALERTS = 5000
_RANK = re.compile(r"\d{1,9}\Z", re.ASCII)


class PayloadError(ValueError):
    """Not what Alertmanager sends; the message says how."""


class Accusation(NamedTuple):
    """One alert that fires and names a rank."""

    alert: str
    run_id: str
    rank: int


def accusations(body: bytes) -> list[Accusation]:
    """The ranks named by alerts that fire; alerts that name none, and resolved ones, are left out.

    Raises:
        PayloadError: The body is no delivery of Alertmanager's.
    """
    try:
        payload = json.loads(body)
    except (ValueError, RecursionError):
        raise PayloadError(f"not JSON; {_WANTED}") from None
    alerts = payload.get("alerts") if isinstance(payload, dict) else None
    if not isinstance(alerts, list):
        raise PayloadError(f"no list of alerts; {_WANTED}")
    return list(dict.fromkeys(_named(alerts[:_MOST_ALERTS])))


def _named(alerts: list[Any]) -> Iterator[Accusation]:
    for alert in alerts:
        labels = alert.get("labels") if isinstance(alert, dict) else None
        if not isinstance(labels, dict) or alert.get("status", "firing") != "firing":
            continue
        name, run_id, rank = (labels.get(key) for key in ("alertname", "run_id", "rank"))
        if isinstance(name, str) and isinstance(run_id, str) and isinstance(rank, str) and _RANK.match(rank):
            # The name goes into logs and traces.
            shown = "".join(c if c.isprintable() else "\ufffd" for c in name[:128])
            yield Accusation(shown, run_id, int(rank))
