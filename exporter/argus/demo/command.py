"""``argus demo``: flags, requirements, and cleaning up."""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import NoReturn

from argus.demo.control import PHASES, Fault
from argus.prometheus import BinaryNotFoundError, QueryError, StartError, find_alertmanager, find_prometheus

DESCRIPTION = """\
Runs a real training job of four ranks on this machine's CPU, with a real
Prometheus and Alertmanager and the shipped rules; makes one rank slow, and
shows the alert as it reaches a webhook. Takes under three minutes.

Exit status: 0 when exactly the slowed rank and phase were accused (with
--no-fault: nobody), 1 when not, 2 when the demo could not run."""

_ENDING = (signal.SIGINT, signal.SIGTERM)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.description = DESCRIPTION
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    fault = parser.add_argument_group("the fault")
    fault.add_argument("--rank", type=int, default=2, choices=range(4), help="rank to slow (default 2)")
    fault.add_argument("--phase", default="backward", choices=PHASES, help="phase to slow (default backward)")
    fault.add_argument(
        "--factor",
        type=_factor,
        default=3.0,
        metavar="X",
        help="how many times as long, at least 2 (default 3)",
    )
    fault.add_argument("--no-fault", action="store_true", help="slow nobody: nobody must be accused")
    run = parser.add_argument_group("the run")
    run.add_argument(
        "--keep", action="store_true", help="leave everything running until Ctrl-C, to look around"
    )
    run.add_argument("--report", type=Path, metavar="FILE", help="write an HTML page about the run")
    run.add_argument(
        "--timeout", type=_seconds, default=90.0, metavar="S",
        help="seconds to wait for the job to train, and for the notification (default 90)",
    )  # fmt: skip
    run.add_argument(
        "--prometheus", metavar="PATH", help="program of Prometheus (default $ARGUS_PROMETHEUS, else on PATH)"
    )
    run.add_argument(
        "--alertmanager",
        metavar="PATH",
        help="and of Alertmanager (default $ARGUS_ALERTMANAGER, else on PATH)",
    )


def run(args: argparse.Namespace) -> int:
    """Run the demo; the exit status."""
    if importlib.util.find_spec("torch") is None:
        return _refuse("torch is missing: pip install torch (a CPU build is enough)")
    try:
        prometheus, alertmanager = find_prometheus(args.prometheus), find_alertmanager(args.alertmanager)
    except BinaryNotFoundError as error:
        return _refuse(str(error))
    # Needs PyYAML, requests and the rules, which the lines above do not.
    from argus.demo.stack import Binaries, DemoError, Stack
    from argus.demo.story import Story, play

    before = {number: signal.signal(number, _interrupt) for number in _ENDING}
    directory = Path(tempfile.mkdtemp(prefix="argus-demo-"))
    fault = None if args.no_fault else Fault(args.rank, args.phase, args.factor)
    failed, outcome = True, None
    try:
        with Stack(directory, Binaries(prometheus, alertmanager)) as stack:
            story = Story(stack, lambda text: print(text, flush=True))
            outcome = play(story, fault, args.timeout)
            failed = not outcome.right
            if args.report:
                story.report(args.report)
            story.tell(("RIGHT: " if outcome.right else "WRONG: ") + outcome.verdict)
            if args.keep:
                story.keep()
                signal.pause()
            story.tell("Stopping everything")
    except (DemoError, StartError, QueryError) as error:
        return _refuse(str(error))
    except KeyboardInterrupt:
        failed = False
        if outcome is None:
            print("argus demo: interrupted; everything is stopped", file=sys.stderr)
            return 130
        return int(not outcome.right)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if failed:
            print(f"argus demo: logs are in {directory}", file=sys.stderr)
        else:
            shutil.rmtree(directory, ignore_errors=True)
    return int(failed)


def _interrupt(number: int, frame: object) -> NoReturn:
    for ending in _ENDING:  # cleaning up has begun, and is not interrupted
        signal.signal(ending, signal.SIG_IGN)
    raise KeyboardInterrupt


def _refuse(reason: str) -> int:
    print(f"argus demo: {reason}", file=sys.stderr)
    return 2


def _factor(text: str) -> float:
    value = _number(text)
    if not 2 <= value <= 100:
        raise argparse.ArgumentTypeError("the phase must be made 2 to 100 times as long")
    return value


def _seconds(text: str) -> float:
    value = _number(text)
    if not 0 < value <= 3600:
        raise argparse.ArgumentTypeError("give seconds, up to 3600")
    return value


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
