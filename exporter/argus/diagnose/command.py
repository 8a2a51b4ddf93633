"""``argus diagnose TRACE…``: who or what slowed a recorded run down."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from pathlib import Path
from typing import Any

from argus.common_flags import add_run_id
from argus.diagnose import report
from argus.diagnose.judge import TooFewIterationsError, UndecidableError, judge
from argus.diagnose.summary import Summary
from argus.diagnose.verdict import UNDECIDED
from argus.progress import Progress
from argus.prometheus import BinaryNotFoundError, StartError, find_prometheus
from argus.report.command import missing, write
from argus.report.recorded import Recorder
from argus.traces import Notes, Table, TraceError, load

HELP = "say who slowed a recorded run down, with the shipped rules"
DESCRIPTION = """\
Judges a recorded trace with the shipped rules on a private Prometheus, and prints the verdict.
Reads ARGUS traces (Parquet, CSV, JSON Lines), operation traces and Kineto files; gzip too.

Exit status: 0 nobody is accused, 1 somebody or something is, 2 it could not tell.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.description = DESCRIPTION
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("traces", nargs="+", metavar="TRACE", help="files, or folders with files, of one run")
    parser.add_argument("--json", action="store_true", help="print the verdict as JSON")
    parser.add_argument("--summary", action="store_true", help="only print what was read, judge nothing")
    add_run_id(parser, "read only this run of a trace that holds several")
    parser.add_argument(
        "--prometheus", metavar="PATH",
        help="program of Prometheus to run (default: $ARGUS_PROMETHEUS, then PATH)",
    )  # fmt: skip
    parser.add_argument(
        "--keep",
        metavar="DIR",
        type=Path,
        help="leave Prometheus's configuration, rules, data and log in this new folder",
    )
    parser.add_argument(
        "--report", metavar="FILE", type=Path, help="also write an HTML page about the verdict, with pictures"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")


def run(args: argparse.Namespace) -> int:
    """Run the command; return its exit status."""
    progress = Progress(quiet=args.quiet)
    previous = signal.signal(signal.SIGTERM, _interrupt)
    try:
        return _run(args, progress)
    except KeyboardInterrupt:
        progress.clear()
        print("argus diagnose: interrupted", file=sys.stderr)
        return 130
    except (TraceError, BinaryNotFoundError, StartError, UndecidableError, OSError) as error:
        progress.clear()
        print(f"argus diagnose: {error}", file=sys.stderr)
        return UNDECIDED
    finally:
        signal.signal(signal.SIGTERM, previous)


def _interrupt(number: int, frame: Any) -> None:
    raise KeyboardInterrupt


def _run(args: argparse.Namespace, progress: Progress) -> int:
    binary = None if args.summary else find_prometheus(args.prometheus)
    if args.keep and args.keep.exists() and any(args.keep.iterdir()):
        raise UndecidableError(f"{args.keep} is not empty; --keep needs a new folder")
    if args.report and (reason := missing()):
        raise UndecidableError(reason)
    table, notes = load(args.traces, args.run_id, progress)
    with table:
        for line in notes.lines():
            progress.clear()
            print(f"argus diagnose: {line}", file=sys.stderr)
        if binary is None:
            progress.clear()
            _print_summary(table, notes, args.json)
            return 0
        if args.keep:
            args.keep.mkdir(parents=True, exist_ok=True)
        try:
            recorder = _recorder(table, args) if args.report else None
            verdict = judge(table, notes, binary, args.keep, progress, recorder)
        except TooFewIterationsError as error:
            progress.clear()
            print(f"argus diagnose: can't judge: {error}. This was read:", file=sys.stderr)
            _print_summary(table, notes, args.json)
            return UNDECIDED
    if recorder is not None and (document := recorder.document(verdict)) is not None:
        progress("drawing the report")
        write(document, args.report)
    progress.clear()
    if args.json:
        print(json.dumps(verdict.json(), indent=2))
    else:
        print("\n".join(report.lines(verdict)))
    if args.keep:
        print(f"argus diagnose: Prometheus's data is in {args.keep}", file=sys.stderr)
    if args.report:
        print(f"argus diagnose: the report is {args.report}", file=sys.stderr)
    return verdict.status


def _recorder(table: Table, args: argparse.Namespace) -> Recorder:
    run_id = next(iter(table.ranks.values())).run_id
    names = ", ".join(Path(trace).name for trace in args.traces[:3])
    return Recorder(run_id, f"{names}{', …' if len(args.traces) > 3 else ''}")


def _print_summary(table: Table, notes: Notes, as_json: bool) -> None:
    summary = Summary(table)
    if not as_json:
        print("\n".join(summary.lines()))
        return
    document = {
        "run_id": next(iter(table.ranks.values())).run_id,
        "ranks": len(table.ranks),
        "iterations": len(table.iterations),
        "alerts": [],
        "skipped": list(notes.lines()),
        "read": summary.json(),
    }
    print(json.dumps(document, indent=2))
