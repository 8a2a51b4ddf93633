"""``argus rules``: write the alerting rules as this installation's Prometheus needs them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from argus import ruleset
from argus.ruleset import parts, shipped, thresholds
from argus.severity import grave


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
        "--thresholds", nargs="?", const="text", choices=("text", "markdown"), metavar="FORMAT",
        help="list every number by which the rules decide, and why it is what it is, and write nothing",
    )  # fmt: skip
    parser.add_argument(
        "--runbook", metavar="ALERT", help="print what to do about this alert, and write nothing"
    )
    parser.add_argument(
        "-o", "--output", type=Path, metavar="DIR", help="folder to write the files to; it is made if missing"
    )
    parser.add_argument(
        "--scrape-interval", default="15s", metavar="DURATION",
        help="how often your Prometheus scrapes ARGUS's exporters (default: 15s)",
    )  # fmt: skip
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", dest="set_thresholds",
        help="another value for a threshold, such as slow_ratio=1.3; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--thresholds-file", type=Path, metavar="FILE",
        help="YAML file with thresholds, one a line (slow_ratio: 1.3); --set counts more",
    )  # fmt: skip
    parser.add_argument(
        "--by", default="", metavar="LABELS",
        help="labels that tell runs apart beside run_id, such as cluster,namespace, where the series of "
        "several clusters meet in one Prometheus",
    )  # fmt: skip
    parser.add_argument(
        "--part", choices=parts.PARTS,
        help="only the rules of one part, where several Prometheus servers share a job: a shard holds whole "
        "roles, a global one what goes beyond (default: all)",
    )  # fmt: skip
    parser.add_argument(
        "--selectors", action="store_true",
        help="name the series that a global Prometheus needs from its shards, as selectors for federation "
        "or remote write, and write nothing",
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
        "--format", choices=("prometheus", "operator", "vmalert"), default="prometheus",
        help="rule files, one PrometheusRule object for the Prometheus operator, or rule files for "
        "VictoriaMetrics's vmalert (default: prometheus)",
    )  # fmt: skip
    parser.add_argument(
        "--object-label", action="append", default=[], metavar="NAME=VALUE",
        help="with --format operator: label of the object, by which rules are selected; may be repeated",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Do it; 0 when written, 2 when the arguments make no sense or the folder can't be written."""
    try:
        told = _told(args)
        if told is not None:
            sys.stdout.write(told)
            return 0
        options = _options(args)
        files = _files(args, options)
        if args.output is None:
            # Several files are several documents.
            sys.stdout.write("---\n".join(files.values()))
            return 0
        args.output.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (args.output / name).write_text(text, "utf-8")
    except (ruleset.RulesetError, OSError) as error:
        print(f"argus rules: {error}", file=sys.stderr)
        return 2
    names = next(iter(files)) if len(files) == 1 else f"{len(files)} files"
    changed = ", ".join(f"{name}={value}" for name, value in sorted(options.thresholds.items()))
    with_ = f" with {changed}" if changed else ""
    print(f"argus rules: wrote {names} to {args.output}{with_}", file=sys.stderr)
    others = sorted(path.name for path in args.output.glob("argus*.yml") if path.name not in files)
    if others:
        print(
            f"argus rules: remove what an earlier call left in {args.output}, for rule_files may name it "
            f"too: {', '.join(others)}", file=sys.stderr,
        )  # fmt: skip
    return 0


def _told(args: argparse.Namespace) -> str | None:
    """What is printed instead of rules, if that was asked for."""
    if args.list:
        return _overview()
    if args.thresholds:
        return thresholds.markdown() if args.thresholds == "markdown" else thresholds.text()
    if args.selectors:
        return "".join(f"{selector}\n" for selector in parts.selectors(shipped.all_groups()))
    return ruleset.runbook(args.runbook) if args.runbook else None


def _options(args: argparse.Namespace) -> ruleset.Options:
    chosen = thresholds.from_file(args.thresholds_file) if args.thresholds_file else {}
    return ruleset.Options(
        scrape_interval=ruleset.parse_duration(args.scrape_interval),
        runbook_base=args.runbook_base,
        dashboard_base=args.dashboard_base,
        alert_labels=_labels(args.alert_label, "--alert-label"),
        thresholds={**chosen, **thresholds.from_pairs(args.set_thresholds)},
        part=args.part,
        by=tuple(label.strip() for label in args.by.split(",")) if args.by else (),
    )


def _files(args: argparse.Namespace, options: ruleset.Options) -> dict[str, str]:
    if args.format == "operator":
        labels = _labels(args.object_label, "--object-label")
        return {"argus-prometheusrule.yml": ruleset.render_operator(options, labels=labels)}
    if args.format == "vmalert":
        return ruleset.render_vmalert(options)
    if args.output is None:
        return {"argus.yml": ruleset.render_joined(options)}
    return ruleset.render_files(options)


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
    gravest_first = sorted(seen.items(), key=lambda item: (grave(item[1][0][0]), item[0]))
    return "".join(f"{name:<{width}}  {', '.join(sev):<17}  {text}\n" for name, (sev, text) in gravest_first)
