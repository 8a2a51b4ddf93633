"""``argus doctor``: flags, the list of checks, the report."""

from __future__ import annotations

import argparse
import json
import os
import sys
from functools import partial

from argus.doctor import gpu, node, rank, stacks
from argus.doctor.examine import examine
from argus.doctor.exporter import exporter
from argus.doctor.finding import Check, Finding, Level
from argus.exporter.web.server import DEFAULT_PORT

DESCRIPTION = """\
Checks what a rank and a node need, and says what to do about what is missing.
Run it where ranks run (inside the job, as its launcher starts a rank), and where
the exporter runs; it needs no privileges, changes nothing and sends nothing."""

EPILOG = """\
Exit status: 0 all is well or only worth a note, 1 something does not work,
2 the flags can't be followed."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--exporter", metavar="URL",
        help=f"this node's exporter, which then must answer (default http://localhost:{DEFAULT_PORT}, may be "
        "missing)",
    )  # fmt: skip
    parser.add_argument(
        "--prometheus", metavar="URL",
        help="also check that this Prometheus scrapes the exporters and has the rules and fresh samples",
    )  # fmt: skip
    parser.add_argument("--alertmanager", metavar="URL", help="also check that this Alertmanager answers")
    parser.add_argument(
        "--timeout",
        type=_seconds,
        default=10.0,
        metavar="SECONDS",
        help="for all checks together (default 10)",
    )
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return value


def run(args: argparse.Namespace) -> int:
    """Examine and report; 1 where there is a problem."""
    results = examine(_checks(args), args.timeout)
    worst = max((finding.level for findings in results.values() for finding in findings), default=Level.OK)
    sys.stdout.write(_json(results) if args.json else _text(results))
    sys.stdout.flush()
    return int(worst is Level.PROBLEM)


def _checks(args: argparse.Namespace) -> dict[str, Check]:
    environ = dict(os.environ)
    exporter_url = args.exporter or f"http://localhost:{DEFAULT_PORT}"
    checks: dict[str, Check] = {
        "python": rank.python,
        "identity": partial(rank.identity, environ),
        "settings": partial(rank.settings, environ),
        "shared memory": partial(node.shared_memory, environ),
        "limits": node.limits,
        "clock": node.clock,
        "stacks": stacks.tracing,
        "gpu": gpu.management,
        "kernels": partial(gpu.kernels, environ),
        "exporter": partial(exporter, exporter_url, args.exporter is not None),
    }
    if args.prometheus or args.alertmanager:
        from argus.doctor import prometheus

        if args.prometheus:
            checks["prometheus"] = partial(prometheus.prometheus, args.prometheus, exporter_url)
        if args.alertmanager:
            checks["alertmanager"] = partial(prometheus.alertmanager, args.alertmanager)
    return checks


def _text(results: dict[str, list[Finding]]) -> str:
    width = max(map(len, results))
    lines = []
    for name, findings in results.items():
        for finding in findings:
            lines.append(f"{name:<{width}}  {finding.level.name.lower():<7}  {finding.found}")
            if finding.mend:
                lines.append(f"{'':<{width}}           -> {finding.mend}")
    counts = [sum(f.level is level for findings in results.values() for f in findings) for level in Level]
    lines.append(f"\n{_count(counts[Level.PROBLEM], 'problem')}, {_count(counts[Level.NOTE], 'note')}")
    return "\n".join(lines) + "\n"


def _count(number: int, noun: str) -> str:
    return f"{number or 'no'} {noun}{'' if number == 1 else 's'}"


def _json(results: dict[str, list[Finding]]) -> str:
    findings = [
        {"check": name, "level": finding.level.name.lower(), "found": finding.found, "mend": finding.mend}
        for name, each in results.items()
        for finding in each
    ]
    return json.dumps(findings, indent=2, ensure_ascii=False) + "\n"
