"""``argus nvtx``: where the library is, and what ranges become."""

from __future__ import annotations

import argparse
import os
import sys

from argus import _native
from argus.nvtx.injection import PATTERNS, VARIABLE, library

_DESCRIPTION = f"""\
Tells what NVTX ranges become: phases, iterations, pauses, or nothing. To trace a program's ranges
without a change in it:
  export {VARIABLE}=$(argus nvtx --path)
"""
_EPILOG = """\
A file of your own rules has one 'target pattern' a line; '#' begins a comment:
  iteration          ^my_step
  mlp:compute        ^layer*_mlp$
  grad_sync          ^allreduce
  pause:evaluation   ^validation
  ignore             @NCCL *
The target is a phase (with a kind: compute, host, communication or mixed, else the name decides),
iteration, pause:<kind> or ignore; a phase with a final + is an iteration's last one. A pattern is
found anywhere in the name, upper or lower case. '*' stands for any characters, '?' for one, '^' at
the beginning and '$' at the end for the name's. '@domain' before it: only ranges of that domain.
Your rules go before ARGUS's own, the first that fits wins. More in docs/nvtx.md.

Exit status: 0, or 2 when the file can't be used.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's flags."""
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("names", nargs="*", metavar="NAME", help="names of ranges: print what each becomes")
    parser.add_argument("--path", action="store_true", help=f"print the library for {VARIABLE}")
    parser.add_argument("--list", action="store_true", help="print ARGUS's own rules")
    parser.add_argument("--domain", default="", help="the domain of the ranges (default: the default domain)")
    parser.add_argument(
        "--patterns", metavar="FILE", default=os.environ.get(PATTERNS) or None,
        help=f"your own rules (default: ${PATTERNS})",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Print what was asked for."""
    if args.path:
        print(library())
    if args.list:
        for target, pattern in _native.nvtx_defaults():
            print(f"{target:<28} {pattern}")
    rules, complaint = _native.nvtx_rules(args.patterns)
    if complaint:
        print(f"argus nvtx: {complaint}", file=sys.stderr)
        return 2
    for name in args.names:
        print(f"{_native.nvtx_target(rules, name, args.domain) or '-':<28} {name}")
    if not (args.path or args.list or args.names):
        print(f"{library()}\nTry: argus nvtx --help", file=sys.stderr)
    return 0
