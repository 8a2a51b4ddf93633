"""``argus``: one command, its parts imported only when they are asked for."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Protocol, cast


class Command(Protocol):
    """What the module of a subcommand offers."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the subcommand's arguments; may set ``parser.description``."""
        ...

    def run(self, args: argparse.Namespace) -> int:
        """Do it; the exit status."""
        ...


COMMANDS = {
    "exporter": ("argus.exporter.command", "serve this node's training ranks to Prometheus"),
    "replay": ("argus.replay.command", "feed recorded traces to an exporter as if they were a live job"),
    "diagnose": ("argus.diagnose.command", "name the culprit in recorded traces"),
    "classify": ("argus.kernels.command", "add up a trace's GPU time by kernel class"),
    "nvtx": ("argus.nvtx.command", "tell what NVTX ranges become, and how to trace them"),
    "trace": ("argus.flight.command", "write what ranks did last as a trace for Perfetto"),
    "stacks": ("argus.stacks.command", "show where a rank's Python threads were in the last minutes"),
    "rules": ("argus.rules_command", "list or render the recording and alerting rules"),
    "dashboards": ("argus.dashboards_command", "write the Grafana dashboards"),
    "examples": ("argus.examples_command", "write example configurations: Prometheus, Grafana, systemd, …"),
    "report": ("argus.report.command", "write a page about a run: who slows it, since when, at what cost"),
    "doctor": ("argus.doctor.command", "check what ranks and nodes need, and say what to do"),
    "drill": ("argus.drill.command", "play a modelled job with a known fault, to rehearse your alerting"),
    "demo": ("argus.demo.command", "run a small real job with one slow rank, up to the alert"),
}
"""Module and one line of help by name."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = argparse.ArgumentParser(
        prog="argus", description="Names the slow GPU, link or host of a training job, through Prometheus."
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND")
    wanted = next((argument for argument in arguments if not argument.startswith("-")), None)
    modules: dict[str, Command] = {}
    responsible = parser
    for name, (module, line) in COMMANDS.items():
        subparser = subparsers.add_parser(name, help=line)
        if name == wanted:
            responsible = subparser
            modules[name] = cast("Command", importlib.import_module(module))
            modules[name].add_arguments(subparser)
    args, unknown = parser.parse_known_args(arguments)
    if unknown:
        responsible.error(f"unrecognized arguments: {' '.join(unknown)}")
    if args.version:
        from argus._native import __version__

        print(f"argus {__version__}")
        return 0
    if args.command is None:
        parser.print_help()
        return 2
    try:
        return modules[args.command].run(args)
    except BrokenPipeError:
        # The reader (head, less) has enough; nothing is wrong.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
