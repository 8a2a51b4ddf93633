"""``argus replay TRACE…``: a recorded run as if it were live."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

from argus._native import Segment
from argus.common_flags import add_run_id, add_segments_directory
from argus.progress import Progress
from argus.replay import pace
from argus.replay.feed import Feed, anonymous, recorded_world_size, segment_fields
from argus.traces import Rank, Table, TraceError, load

DESCRIPTION = """\
Feeds recorded traces through the same segments as a live job, in real time or faster,
so that a real exporter, Prometheus and Alertmanager can be tried on them.

By default it writes segment files, which an `argus exporter` on this machine finds and
serves; with --listen it serves the metrics itself.  Ctrl-C ends the run cleanly.
"""

_EXPORTER_LIMIT = 128
"""Segments of one user that an exporter reads unless told otherwise."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.description = DESCRIPTION
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("traces", nargs="+", metavar="TRACE", help="files, or folders with files, of one run")
    parser.add_argument(
        "--speed", type=_speed, default=1.0, metavar="X", help="times as fast as recorded (default 1)"
    )
    parser.add_argument("--loop", action="store_true", help="begin again at the end, until Ctrl-C")
    add_run_id(parser, "read only this run of a trace that holds several")
    parser.add_argument("--show-as", metavar="NAME", help="show the run under this name")
    where = parser.add_mutually_exclusive_group()
    add_segments_directory(where)
    where.add_argument(
        "--listen", metavar="ADDRESS", help="serve the metrics here (HOST:PORT) and write no segment files"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")


def _speed(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a speed; give a number above 0, such as 10")
    return value


def run(args: argparse.Namespace) -> int:
    """Run the command: 0 at the end or after Ctrl-C, 2 when it can't be done."""
    from argus.exporter.web.server import AddressError
    from argus.tracer.place import PlaceError

    progress = Progress(quiet=args.quiet)
    try:
        with _signals() as stop:
            return _run(args, progress, stop)
    except (TraceError, PlaceError, AddressError, OSError) as error:
        progress.clear()
        print(f"argus replay: {error}", file=sys.stderr)
        return 2


@contextmanager
def _signals() -> Iterator[Event]:
    """An event that Ctrl-C and SIGTERM set."""
    stop = Event()
    previous = {
        number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _run(args: argparse.Namespace, progress: Progress, stop: Event) -> int:
    table, notes = load(args.traces, args.run_id, progress)
    with table:
        progress.clear()
        for line in notes.lines():
            print(f"argus replay: {line}", file=sys.stderr)
        for rank in table.ranks.values():
            rank.run_id = args.show_as or rank.run_id
        if args.segments:
            os.environ["ARGUS_DIR"] = str(args.segments)
        make: Callable[[Rank, int], Segment] = anonymous if args.listen else _file
        if not args.listen and len(table.ranks) > _EXPORTER_LIMIT:
            print(
                f"argus replay: {len(table.ranks)} ranks are more than an exporter reads of one user by "
                "default; start it with --segments.max-per-user, or use --listen",
                file=sys.stderr,
            )
        feed = Feed(table, make, recorded_world_size(table))
        try:
            if not args.listen:
                return _play(args, table, feed, progress, stop)
            with _exporter(args.listen, feed) as url:
                print(f"argus replay: serving {url}", file=sys.stderr)
                return _play(args, table, feed, progress, stop)
        finally:
            feed.close("ended")
            progress.clear()


def _play(args: argparse.Namespace, table: Table, feed: Feed, progress: Progress, stop: Event) -> int:
    numbers = table.iterations
    once = pace.seconds(table, args.speed)
    shift, count = 0, len(numbers)
    while True:

        def told(position: int, seconds: float, shift: int = shift) -> None:
            number = numbers[position - 1] + shift
            progress(f"iteration {number} ({position} of {count}), {seconds:.3g} s each, {once:.0f} s in all")

        if not pace.play(table, feed, args.speed, stop, shift, told) or not args.loop:
            return 0
        shift += numbers[-1] - numbers[0] + 1


def _file(rank: Rank, world_size: int) -> Segment:
    from argus.tracer.place import create_segment

    return create_segment(**segment_fields(rank, world_size))


@contextmanager
def _exporter(address: str, feed: Feed) -> Iterator[str]:
    """An exporter of these segments only."""
    from argus.exporter.service import Exporter, Options
    from argus.exporter.sources import MemorySource

    with tempfile.TemporaryDirectory(prefix="argus-replay-") as nothing:
        options = Options(addresses=(address,), segments=Path(nothing))
        with Exporter(options, MemorySource(feed.segments)) as exporter:
            yield exporter.servers[0].url
