"""``argus dashboards``: write the Grafana dashboards as this installation needs them."""

from __future__ import annotations

import argparse
import json
import sys
from importlib import resources
from pathlib import Path

from argus.ruleset import RUNBOOK_BASE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's flags."""
    parser.description = "Writes ARGUS's Grafana dashboards, as files to provision or to import."
    parser.epilog = (
        "Alerts link to these dashboards by their uids, and name no data source: make the Prometheus that "
        "has ARGUS's series Grafana's default one. Tell the alerts where Grafana is with "
        "argus rules --dashboard-base."
    )
    parser.add_argument("--list", action="store_true", help="name every dashboard, and write nothing")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="DIR", help="folder to write the files to; it is made if missing"
    )
    parser.add_argument(
        "--runbook-base", default=RUNBOOK_BASE, metavar="URL",
        help="where your people find the runbooks, as URL/ArgusRankDown.md (default: a placeholder)",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Do it; 0 when written, 2 when there is nothing to do or the folder can't be written."""
    files = shipped()
    if args.list:
        for text in files.values():
            dashboard = json.loads(text)
            print(f"{dashboard['uid']:<20}  {dashboard['description']}")
        return 0
    if args.output is None:
        print("argus dashboards: name a folder with --output DIR, or ask for --list", file=sys.stderr)
        return 2
    try:
        args.output.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (args.output / name).write_text(with_runbooks(text, args.runbook_base), "utf-8")
    except OSError as error:
        print(f"argus dashboards: {error}", file=sys.stderr)
        return 2
    print(f"argus dashboards: wrote {len(files)} files to {args.output}", file=sys.stderr)
    return 0


def shipped() -> dict[str, str]:
    """The dashboards as shipped: file name -> JSON text."""
    folder = resources.files("argus") / "dashboards"
    found = {item.name: item.read_text("utf-8") for item in folder.iterdir() if item.name.endswith(".json")}
    return dict(sorted(found.items()))


def with_runbooks(text: str, base: str) -> str:
    """A dashboard whose links to runbooks start with ``base``."""
    # Inside JSON's strings, so that no address can break the file.
    return text.replace(json.dumps(RUNBOOK_BASE), json.dumps(base.rstrip("/")))
