"""How grave an alert is."""

from __future__ import annotations

_SEVERITIES = ("critical", "warning", "info")


def grave(severity: str) -> int:
    """Position among the severities, the gravest first; unknown ones come last."""
    return _SEVERITIES.index(severity) if severity in _SEVERITIES else len(_SEVERITIES)
