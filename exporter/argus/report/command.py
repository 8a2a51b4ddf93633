"""``argus report``: flags, and writing the page."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from argus.flight.files import atomic_file
from argus.progress import Progress
from argus.prometheus import Client, QueryError
from argus.report.span import SpanError, span

if TYPE_CHECKING:
    from argus.report.model import Document

DESCRIPTION = """\
Writes one self-contained HTML page about a run: the verdict in words, where time
is lost, since when, who waits for whom, what it costs, and what to do.

  argus report --prometheus http://prometheus:9090 --run-id 81723 -o report.html
  argus report --prometheus http://prometheus:9090 --run-id 81723 \\
      --from 2026-03-01T02:40:00Z --to 2026-03-01T03:10:00Z -o incident.html

Prometheus must have ARGUS's rules loaded. For recorded traces there is
`argus diagnose TRACE --report FILE`. Needs matplotlib and Jinja2
(pip install "argus-gpu[report]")."""

EPILOG = "Exit status: 0 written, 1 nothing to report on, 2 wrong arguments or no Prometheus."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--prometheus", required=True, metavar="URL",
        help="the Prometheus to ask; http://USER:PASSWORD@HOST:9090/PREFIX where it wants or has these",
    )  # fmt: skip
    parser.add_argument("--run-id", required=True, metavar="RUN_ID", help="the run, as in the label run_id")
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("argus-report.html"), metavar="FILE",
        help="where to write (default argus-report.html)",
    )  # fmt: skip
    when = parser.add_argument_group("the range (default: the last 30 minutes)")
    when.add_argument("--from", dest="begin", metavar="TIME", help="2026-03-01T02:40:00Z, or Unix seconds")
    when.add_argument("--to", dest="end", metavar="TIME", help="the same, or now (default now)")
    when.add_argument("--last", metavar="DURATION", help="so long before --to: 30m, 6h, 1d")
    parser.add_argument(
        "--timeout", type=float, default=60.0, metavar="S", help="seconds for each query (default 60)"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")


def missing() -> str:
    """Why no page can be made here; empty where it can."""
    absent = [name for name in ("matplotlib", "jinja2") if importlib.util.find_spec(name) is None]
    if not absent:
        return ""
    return f"{' and '.join(absent)} missing, which draw the report: pip install 'argus-gpu[report]'"


def run(args: argparse.Namespace) -> int:
    """Run the command; the exit status."""
    try:
        axis = span(args.begin, args.end, args.last)
    except SpanError as error:
        return _refuse(str(error))
    if reason := missing():
        return _refuse(reason)
    from argus.report.gather import NothingError, gather

    progress = Progress(quiet=args.quiet)
    client = Client(args.prometheus, args.timeout)
    try:
        source = f"Prometheus {client.url}"
        document = gather(client, args.run_id, axis, source, progress=progress)
        progress("drawing")
        write(document, args.output)
    except NothingError as error:
        progress.clear()
        print(f"argus report: {error}", file=sys.stderr)
        return 1
    except (QueryError, OSError) as error:
        progress.clear()
        return _refuse(str(error))
    finally:
        client.close()
    progress.clear()
    print(document.verdict)
    print(f"Written: {args.output}", file=sys.stderr)
    return 0


def write(document: Document, path: Path) -> None:
    """Draw the page, and let it appear in one go.

    Raises:
        OSError: The file can't be written.
    """
    from argus.report.page import render

    page = render(document).encode("utf-8")
    with atomic_file(path, 0o644) as file:
        file.write(page)


def _refuse(reason: str) -> int:
    print(f"argus report: {reason}", file=sys.stderr)
    return 2
