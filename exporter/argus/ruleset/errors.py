"""What can be wrong with a request for rules."""

from __future__ import annotations


class RulesetError(ValueError):
    """The rules can't be rendered as asked; the message says why."""
