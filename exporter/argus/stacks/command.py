"""``argus stacks``: where a rank's Python threads were in the last minutes, or are now."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from argus import _native
from argus.common_flags import add_run_id, add_segments_directory
from argus.exporter.lifecycle import FileSource
from argus.flight import fetch
from argus.flight.files import atomic_file
from argus.flight.recording import Recording
from argus.flight.select import SelectError, choose, record
from argus.segment.files import base_directory
from argus.stacks.dump import DumpError, dump
from argus.stacks.render import FORMATS, RenderError, render

_PATTERNS = "ARGUS_STACK_PATTERNS"

DESCRIPTION = """\
Shows what a rank's Python threads did in the last minutes: by category, and
stack by stack. The rank samples itself ten times a second (ARGUS_STACKS).

  argus stacks --rank 3                                  what to read first
  argus stacks --rank 3 --format speedscope -o r3.json   open at https://www.speedscope.app
  argus stacks --rank 3 --format folded | flamegraph.pl > r3.svg
  argus stacks --exporter node7:9733 --rank 3            a rank of another node
  argus stacks --rank 3 --dump                           now, from outside, by py-spy

A rank that keeps the GIL in C code takes no samples meanwhile; --dump sees it."""

EPILOG = f"""\
A file of patterns (${_PATTERNS}) has one 'category pattern' a line; '#' begins a
comment. Functions are called module:qualified.name, in __main__ file.py:name:
  data_loading   ^my_dataset.
  checkpoint     ^my_trainer:*.save$
A pattern is found anywhere in the name, upper or lower case. '*' stands for any
characters, '?' for one, '^' at the beginning and '$' at the end for the name's.
Your patterns go before the built-in rules, the innermost function first.

Exit status: 0 written, 1 nothing to write, 2 wrong arguments."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--rank", type=int, metavar="R", help="global rank (default: the only one there is)")
    add_run_id(parser, "which run, where there are ranks of several")
    parser.add_argument(
        "--format", choices=FORMATS, default="text",
        help="text to read, folded stacks for flame graphs, or speedscope's JSON (default text)",
    )  # fmt: skip
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="where to write (default: standard output)"
    )
    parser.add_argument(
        "--dump", action="store_true",
        help="take the stacks of this moment from outside, by py-spy; needs the right to trace the process",
    )  # fmt: skip
    add_segments_directory(parser)
    parser.add_argument("--exporter", metavar="URL", help="ask this exporter instead of looking on this node")
    parser.add_argument("--ca-file", metavar="FILE", help="certificate authority of the exporter")
    parser.add_argument("--client-cert", metavar="FILE", help="certificate and key to show to it, in PEM")
    parser.add_argument(
        "--list", action="store_true", help="name the categories with their built-in rules, and read nothing"
    )
    parser.add_argument(
        "--check",
        type=Path,
        metavar="FILE",
        help="say what is wrong with a file of patterns, and read nothing else",
    )


def run(args: argparse.Namespace) -> int:
    """Write the stacks; the exit status."""
    if args.list:
        sys.stdout.write(_listing())
        return 0
    if args.check is not None:
        return _check(args.check)
    if args.dump and (args.exporter or args.format != "text"):
        return _complain("--dump looks at this node's processes, and writes text only", 2)
    try:
        if args.exporter:
            content = _remote(args)
        elif args.dump:
            content = _dump(args)
        else:
            content = _recorded(args)
        _write(content, args.output)
    except (SelectError, RenderError, DumpError, fetch.FetchError) as error:
        return _complain(str(error), 1)
    except OSError as error:
        return _complain(f"{error.filename or args.output}: {error.strerror or error}", 1)
    return 0


def _complain(text: str, status: int) -> int:
    print(f"argus stacks: {text}", file=sys.stderr)
    return status


def _listing() -> str:
    lines = ["Categories: " + ", ".join(_native.stack_categories()), "", "Built-in rules, first match first:"]
    for category, patterns in _native.stack_rules():
        lines += ["", category, *(f"  {pattern}" for pattern in patterns.split())]
    return "\n".join(lines) + "\n"


def _check(path: Path) -> int:
    patterns, complaint = _native.read_stack_patterns(path)
    if complaint:
        return _complain(complaint, 1)
    print(f"{path}: {'good' if patterns is not None else 'no patterns in it'}")
    return 0


def _ranks(args: argparse.Namespace) -> set[int] | None:
    return None if args.rank is None else {args.rank}


def _recorded(args: argparse.Namespace) -> str:
    source = FileSource(args.segments or base_directory(), removes=False)
    try:
        found: list[Recording] = record([source], args.run_id, _ranks(args), _native.monotonic_ns())
    except SelectError as error:
        raise SelectError(f"{source.base}: {error}; this command reads the ranks of this node") from None
    finally:
        source.close()
    return render(found, args.format)


def _dump(args: argparse.Namespace) -> str:
    source = FileSource(args.segments or base_directory(), removes=False)
    try:
        ranks = source.scan(_native.monotonic_ns()).ranks
        keys = choose((rank.state.identity.key for rank in ranks if rank.up), args.run_id, _ranks(args))
        if len(keys) > 1:
            raise SelectError(f"say which rank: {', '.join(str(key.rank) for key in keys)}")
        pids = source.processes(keys)
    except SelectError as error:
        raise SelectError(f"{source.base}: {error}") from None
    finally:
        source.close()
    if keys[0] not in pids:
        raise DumpError(f"rank {keys[0].rank} is gone")
    return dump(pids[keys[0]])


def _remote(args: argparse.Namespace) -> str:
    query = [("format", args.format)]
    query += [("rank", str(args.rank))] if args.rank is not None else []
    query += [("run_id", args.run_id)] if args.run_id is not None else []
    try:
        content = fetch.get(
            args.exporter, "/stacks/now", query, ca_file=args.ca_file, client_cert=args.client_cert
        )
    except fetch.NotThereError as error:
        if error.headers.get("X-Argus-Stacks") == "none":
            raise fetch.FetchError(f"{error.url}: {error.said}") from None
        raise fetch.FetchError(f"{error.url}: no stacks there; an older exporter?") from None
    return content.decode("utf-8", "replace")


def _write(content: str, path: Path | None) -> None:
    if path is None:
        sys.stdout.write(content)
        return
    mask = os.umask(0o077)
    os.umask(mask)
    with atomic_file(path, 0o666 & ~mask) as file:
        file.write(content.encode())
    print(f"{path}: written")
