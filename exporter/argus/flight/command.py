"""``argus trace``: what ranks did last, as a trace that Perfetto opens."""

from __future__ import annotations

import argparse
import gzip
import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from argus import _native
from argus.common_flags import add_run_id, add_segments_directory
from argus.exporter.lifecycle import FileSource
from argus.flight import clocks, fetch
from argus.flight.files import atomic_file
from argus.flight.model import RankTrace
from argus.flight.perfetto.parse import TraceError, parse
from argus.flight.perfetto.write import encode
from argus.flight.range import RangeError, parse_ranks
from argus.flight.range import parse as parse_iterations
from argus.flight.recording import traces
from argus.flight.select import SelectError, record
from argus.segment.files import base_directory

DESCRIPTION = """\
Writes what ranks did last (iterations, phases, collectives, kernels by stream)
as a trace for https://ui.perfetto.dev, which reads it in the browser and sends
it nowhere.

  argus trace --rank 3 -o rank3.pftrace.gz              a rank of this node, now
  argus trace --ranks 0-7 --iterations 5 -o node.pftrace.gz
  argus trace --exporter node1:9733 --exporter node2:9733 --ranks 3,11 -o two.pftrace.gz
  argus trace node1.pftrace.gz node2.pftrace.gz -o both.pftrace.gz

Each rank remembers its last events only (ARGUS_FLIGHT_EVENTS), so ask soon.
Ranks whose process has died are there until they start again. Clocks of
several machines are aligned on the ends of the collectives that they shared."""

EPILOG = """\
Passwords of exporters: in the URL (https://user:password@node:9733), or better
in ~/.netrc. Exit status: 0 written, 1 nothing to write, 2 wrong arguments."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "traces", nargs="*", type=Path, metavar="TRACE",
        help="traces written before, by this command or by an exporter's receiver of alerts, to be merged",
    )  # fmt: skip
    parser.add_argument(
        "--rank", "--ranks", dest="ranks", action="append", metavar="R",
        help="global ranks: 3, 1-3 or 0,4-7; may be repeated (default: all of the run)",
    )  # fmt: skip
    add_run_id(parser, "which run, where there are ranks of several")
    parser.add_argument(
        "--iterations", metavar="N|a-b",
        help="the last N iterations of each rank, or those numbered a to b (default: all that is remembered)",
    )  # fmt: skip
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", default=Path("argus-trace.pftrace.gz"),
        help="where to write (default argus-trace.pftrace.gz); compressed if the name ends in .gz, which "
        "Perfetto opens as well; - is standard output",
    )  # fmt: skip
    add_segments_directory(parser)
    parser.add_argument(
        "--exporter", dest="exporters", action="append", metavar="URL",
        help="ask this exporter instead of looking on this node; may be repeated",
    )  # fmt: skip
    parser.add_argument("--ca-file", metavar="FILE", help="certificate authority of the exporters")
    parser.add_argument(
        "--client-cert", metavar="FILE", help="certificate and key to show to the exporters, in PEM"
    )


def run(args: argparse.Namespace) -> int:
    """Write the trace; the exit status."""
    try:
        ranks = parse_ranks(args.ranks) if args.ranks else None
        if args.iterations is not None:
            parse_iterations(args.iterations)
        if args.traces and (args.exporters or ranks is not None or args.iterations or args.run_id):
            raise RangeError("traces that were written before are merged as they are, without other choices")
    except RangeError as error:
        return _complain(str(error), 2)
    try:
        if args.traces:
            found = _written(args.traces)
        elif args.exporters:
            found = _remote(args, ranks)
        else:
            found = _local(args, ranks)
        single = _single(found)
        aligned, said = clocks.align(single)
        times = Counter(each.rank for each in found)
        said += [
            f"rank {each.rank} is there more than once; the latest is shown"
            for each in single
            if times[each.rank] > 1
        ]
        with _output(args.output) as file:
            for part in encode(aligned):
                file.write(part)
    except (SelectError, RangeError, TraceError, fetch.FetchError) as error:
        return _complain(str(error), 1)
    except OSError as error:
        return _complain(f"{error.filename or args.output}: {error.strerror or error}", 1)
    for each in aligned:
        for note in each.notes:
            print(f"argus trace: rank {each.rank}: {note}", file=sys.stderr)
    for missing in sorted((ranks or set()) - {each.rank for each in aligned}):
        print(f"argus trace: rank {missing} was not found", file=sys.stderr)
    for line in said:
        print(f"argus trace: {line}", file=sys.stderr)
    slices = sum(len(track) for each in aligned for track in each.tracks.values())
    if str(args.output) != "-":
        counted = "1 rank" if len(aligned) == 1 else f"{len(aligned)} ranks"
        print(f"{args.output}: {counted}, {slices} intervals; open it at https://ui.perfetto.dev")
    return 0


def _complain(text: str, status: int) -> int:
    print(f"argus trace: {text}", file=sys.stderr)
    return status


def _local(args: argparse.Namespace, ranks: set[int] | None) -> list[RankTrace]:
    base = args.segments or base_directory()
    source = FileSource(base, removes=False)
    wanted = parse_iterations(args.iterations) if args.iterations else None
    try:
        recordings = record([source], args.run_id, ranks, _native.monotonic_ns())
    except SelectError as error:
        raise SelectError(f"{base}: {error}; this command reads the ranks of this node") from None
    finally:
        source.close()
    return traces(recordings, wanted)


def _remote(args: argparse.Namespace, ranks: set[int] | None) -> list[RankTrace]:
    found, failed = [], []
    for url in args.exporters:
        try:
            found += fetch.fetch(
                url, args.run_id, ranks, args.iterations, ca_file=args.ca_file, client_cert=args.client_cert
            )
        except fetch.FetchError as error:
            failed.append(error)
    if failed and not found:
        raise fetch.FetchError("; ".join(map(str, failed)))
    for failure in failed:  # a node that is down is no reason to lose the others' last events
        print(f"argus trace: left out: {failure}", file=sys.stderr)
    return found


def _written(paths: list[Path]) -> list[RankTrace]:
    found = []
    for path in paths:
        try:
            found += parse(path.read_bytes())
        except TraceError as error:
            raise TraceError(f"{path}: {error}") from None
    return found


def _single(found: list[RankTrace]) -> list[RankTrace]:
    """One trace for each rank of one run, the latest where there are several."""
    if not found:
        raise SelectError("none of these ranks is there")
    runs = sorted({each.run_id for each in found})
    if len(runs) > 1:
        raise SelectError(
            f"these are ranks of several runs: {', '.join(map(repr, runs[:12]))}; say which (--run-id)"
        )
    newest = {each.rank: each for each in sorted(found, key=lambda each: (each.attempt, each.last_wall_ns))}
    return [newest[rank] for rank in sorted(newest)]


@contextmanager
def _output(path: Path) -> Iterator[BinaryIO]:
    if str(path) == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    with atomic_file(path, 0o666 & ~_umask()) as file:
        if path.suffix == ".gz":
            with gzip.GzipFile(fileobj=file, mode="wb", mtime=0, filename="", compresslevel=6) as packed:
                yield packed  # type: ignore[misc]
        else:
            yield file


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
