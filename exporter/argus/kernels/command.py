"""``argus classify TRACE…``: GPU time by kernel class, and the names that no rule knows."""

from __future__ import annotations

import argparse
import json
import os
import sys

from argus import _native
from argus.kernels.patterns import VARIABLE, PatternsError, read_patterns
from argus.kernels.tally import Tally, tally
from argus.progress import Progress
from argus.traces.errors import TraceError

_SHOWN = 20
_WIDTH = 140

_DESCRIPTION = """\
Adds up the GPU kernels, copies and memsets of Kineto files (PyTorch profiler) by class, and names
those that landed in 'other', so that you can see what argus_kernel_seconds would show and write
patterns of your own.
"""
_EPILOG = f"""\
A pattern file has one 'class pattern' a line; '#' begins a comment:
  attention  my_fused_attention
  gemm       ^kernel_*_tile$
A pattern is found anywhere in the name, upper or lower case. '*' stands for any characters, '?'
for one, '^' at the beginning and '$' at the end for the name's. Mangled names have no '::', so
write my_space*my_kernel. Patterns go before the built-in rules, in the file's order.
Give the tracer the same file in {VARIABLE}. More in docs/kernel-classes.md.

Exit status: 0 when something was classified, 2 when a trace or the pattern file can't be used.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's flags."""
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("traces", nargs="*", metavar="TRACE", help="Kineto files, or folders with such files")
    parser.add_argument(
        "--json", action="store_true", help="print the classes and all names in 'other' as JSON"
    )
    parser.add_argument(
        "--patterns", metavar="FILE", default=os.environ.get(VARIABLE) or None,
        help=f"your own patterns (default: ${VARIABLE})",
    )  # fmt: skip
    parser.add_argument("--list", action="store_true", help="name the classes, and read nothing")
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")


def run(args: argparse.Namespace) -> int:
    """Do it; the exit status."""
    if args.list:
        print("\n".join(_native.kernel_classes()))
        return 0
    progress = Progress(quiet=args.quiet)
    try:
        if not args.traces:
            raise TraceError("name at least one trace: argus classify TRACE…")
        patterns = read_patterns(args.patterns) if args.patterns else None
        found, notes = tally(args.traces, patterns, progress)
    except (TraceError, PatternsError) as error:
        progress.clear()
        print(f"argus classify: {error}", file=sys.stderr)
        return 2
    progress.clear()
    for line in notes.lines():
        print(f"argus classify: left out: {line}", file=sys.stderr)
    sys.stdout.write(_json(found) if args.json else _table(found))
    return 0


def _json(found: Tally) -> str:
    classes = {
        name: {"seconds": round(item.seconds, 9), "count": item.count} for name, item in found.classes.items()
    }
    return json.dumps({"classes": classes, "other": found.unknown()}, indent=2) + "\n"


def _table(found: Tally) -> str:
    whole = found.seconds
    lines = [f"{'class':<28}{'seconds':>12}{'count':>12}{'share':>9}"]
    for name, item in sorted(found.classes.items(), key=lambda pair: -pair[1].seconds):
        if item.count:
            share = f"{item.seconds / whole:.2%}" if whole else "-"
            lines.append(f"{name:<28}{item.seconds:>12.6f}{item.count:>12,}{share:>9}")
    lines.append(f"{'all':<28}{whole:>12.6f}{found.count:>12,}")
    names = found.unknown()
    if names:
        lines += ["", "names in other, by seconds:"]
        for name in names[:_SHOWN]:
            text = name if len(name) <= _WIDTH else name[: _WIDTH - 1] + "…"
            shown = "".join(c if c.isprintable() else "\ufffd" for c in text)
            lines.append(f"{found.other[name]:>12.6f}  {shown}")
        if len(names) > _SHOWN:
            lines.append(f"{'':>12}  and {len(names) - _SHOWN:,} more; --json lists them all")
    return "\n".join(lines) + "\n"
