"""``argus rules``: write the alerting rules as this installation's Prometheus needs them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from argus import ruleset


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's flags."""
    parser.description = "Writes ARGUS's rules for your Prometheus, lists the alerts, or prints a runbook."
    parser.epilog = (
        "Without --output the rules go to standard output. Name the written files under rule_files in "
        "prometheus.yml (rule_files: [DIR/argus-*.yml]) and reload Prometheus. A placeholder leads nowhere: "
        "put the runbooks where your people can read them, and name that place with --runbook-base."
    )
    parser.add_argument(
        "--list", action="store_true", help="name every alert and what it means, and write nothing"
    )
    parser.add_argument(
        "--runbook", metavar="ALERT", help="print what to do about this alert, and write nothing"
    )
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="folder to write the files to; it is made if missing"
    )
    parser.add_argument(
        "--scrape-interval", default="15s", metavar="DURATION",
        help="how often your Prometheus scrapes ARGUS's exporters (default: 15s)",
    )  # fmt: skip
    parser.add_argument(
        "--runbook-base", default=ruleset.RUNBOOK_BASE, metavar="URL",
        help="where your people find the runbooks, as URL/ArgusRankDown.md (default: a placeholder)",
    )  # fmt: skip
    parser.add_argument(
        "--dashboard-base", default=ruleset.DASHBOARD_BASE, metavar="URL",
        help="address of your Grafana (default: a placeholder)",
    )  # fmt: skip
    parser.add_argument(
        "--alert-label", action="append", default=[], metavar="NAME=VALUE",
        help="label added to every alert, such as team=training; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--format", choices=("prometheus", "operator"), default="prometheus",
        help="rule files, or one PrometheusRule object for the Prometheus operator (default: prometheus)",
    )  # fmt: skip
    parser.add_argument(
        "--object-label", action="append", default=[], metavar="NAME=VALUE",
        help="with --format operator: label of the object, by which rules are selected; may be repeated",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Do it; 0 when written, 2 when the arguments make no sense or the folder can't be written."""
    try:
        if args.list:
            sys.stdout.write(_overview())
            return 0
        if args.runbook:
            sys.stdout.write(ruleset.runbook(args.runbook))
            return 0
        options = ruleset.Options(
            scrape_interval=ruleset.parse_duration(args.scrape_interval),
            runbook_base=args.runbook_base,
            dashboard_base=args.dashboard_base,
            alert_labels=_labels(args.alert_label, "--alert-label"),
        )
        if args.format == "operator":
            objects = _labels(args.object_label, "--object-label")
            files = {"argus-prometheusrule.yml": ruleset.render_operator(options, labels=objects)}
        elif args.output is None:
            files = {"argus.yml": ruleset.render_joined(options)}
        else:
            files = ruleset.render_files(options)
        if args.output is None:
            sys.stdout.write("".join(files.values()))
            return 0
        args.output.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (args.output / name).write_text(text, "utf-8")
    except (ruleset.RulesetError, OSError) as error:
        print(f"argus rules: {error}", file=sys.stderr)
        return 2
    names = next(iter(files)) if len(files) == 1 else f"{len(files)} files"
    print(f"argus rules: wrote {names} to {args.output}", file=sys.stderr)
    return 0


def _labels(pairs: list[str], flag: str) -> dict[str, str]:
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not name or not equals:
            raise ruleset.RulesetError(f"{flag} {pair!r}: write it as name=value")
        found[name] = value
    return found


def _overview() -> str:
    seen: dict[str, tuple[list[str], str]] = {}
    for rule in ruleset.alerts():
        severities, _ = seen.setdefault(rule["alert"], ([], ruleset.meaning(rule["alert"])))
        severities.append(rule["labels"]["severity"])
    width = max(map(len, seen))
    return "".join(f"{name:<{width}}  {', '.join(sev):<17}  {text}\n" for name, (sev, text) in seen.items())
