"""The rules and runbooks as they are shipped."""

from __future__ import annotations

import difflib
import re
from importlib import resources
from typing import Any

import yaml

from argus.ruleset.errors import RulesetError


def load() -> dict[str, str]:
    """The shipped rule files as they stand: file name -> text, sorted by name."""
    folder = resources.files("argus") / "rules"
    found = {item.name: item.read_text("utf-8") for item in folder.iterdir() if item.name.endswith(".yml")}
    if not found:
        raise RulesetError(
            "the rules are missing from this installation; install the package argus-gpu again"
        )
    return dict(sorted(found.items()))


# A mark on the value of a key is a comment of YAML's, which its parser would drop.
_MARKED_KEY = re.compile(r"^(\s+(?:for|keep_firing_for): )(\S+)(\s+# threshold: \w+)$", re.MULTILINE)


def groups(text: str) -> list[dict[str, Any]]:
    """The rule groups of one file, the marks of its thresholds (``thresholds.py``) kept in every value."""
    parsed: list[dict[str, Any]] = yaml.safe_load(_MARKED_KEY.sub(r'\1"\2\3"', text))["groups"]
    return parsed


def all_groups() -> list[dict[str, Any]]:
    """The groups of all files, see :func:`groups`."""
    return [group for text in load().values() for group in groups(text)]


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
    """The shipped runbook of an alert, as Markdown; upper and lower case don't matter.

    Raises:
        RulesetError: There is no such alert; the message names the nearest, or all.
    """
    known = {rule["alert"].lower(): rule["alert"] for rule in alerts()}
    name = known.get(alert.lower())
    if name is None:
        near = difflib.get_close_matches(alert.lower(), known, 1, 0.7)
        hint = f"did you mean {known[near[0]]}?" if near else f"there are {', '.join(sorted(known.values()))}"
        raise RulesetError(f"there is no alert {alert!r}; {hint}")
    return (resources.files("argus") / "runbooks" / f"{name}.md").read_text("utf-8")


def meaning(alert: str) -> str:
    """What an alert means: the first sentence of its runbook."""
    paragraph = runbook(alert).partition("## Meaning")[2].strip().partition("\n\n")[0]
    return " ".join(paragraph.split()).partition(". ")[0].rstrip(".") + "."
