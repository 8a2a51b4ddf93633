"""``argus drill SCENARIO``: a modelled job with a known fault, served as if it were live."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from argus import _native
from argus._native import Segment
from argus.common_flags import add_segments_directory
from argus.drill.fleet import Make, anonymous
from argus.drill.player import Player
from argus.drill.scenario import Scenario, ScenarioError, Settings
from argus.drill.scenarios import SCENARIOS
from argus.drill.timing import Profile
from argus.drill.topology import Topology, TopologyError
from argus.progress import Progress

if TYPE_CHECKING:
    from argus.drill.source import PlayerSource

DESCRIPTION = """\
Rehearses your alerting: a timing model of hybrid-parallel training with a known
fault writes the same segments as a live job.  Nobody trains, and no GPU is needed.

It serves the metrics itself (--listen), or writes segment files that an
`argus exporter` on this machine finds.  It says what must be accused, and when the
fault begins; Ctrl-C ends the run cleanly.  `argus drill --list` explains every scenario.
"""

_SINCE = 120.0
"""Seconds from the begin to the fault."""
_SIZES = {
    "dp": "data-parallel size",
    "tp": "tensor-parallel size",
    "pp": "pipeline stages",
    "cp": "context-parallel size",
    "ep": "expert-parallel size, across dp and cp",
    "micro-batches": "micro-batches of an iteration",
    "chunks": "model chunks of a stage: 1 is plain 1F1B, more is the interleaved schedule",
    "per-node": "ranks of a node",
}
_IN_MEMORY = 4096
"""Ranks above which a warning is due: about 250 KB of memory each, and one exporter for all of them."""

_AGAINST_PEERS = ("ArgusComputeStraggler", "ArgusHostStall")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.description = DESCRIPTION
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("scenario", nargs="?", metavar="SCENARIO", help="one of those that --list explains")
    parser.add_argument("--list", action="store_true", help="explain all scenarios and what must be accused")
    sizes = parser.add_argument_group("the job (each scenario has a size of its own)")
    for name, meaning in _SIZES.items():
        sizes.add_argument(f"--{name}", type=int, metavar="N", help=meaning)
    sizes.add_argument(
        "--iteration", type=_positive, default=2.0, metavar="S", help="seconds of an iteration, about (2)"
    )
    sizes.add_argument("--noise", type=_share, default=0.02, metavar="X", help="spread of every step (0.02)")
    sizes.add_argument("--no-bytes", action="store_true", help="collectives do not tell their payload")
    fault = parser.add_argument_group("the fault")
    fault.add_argument("--rank", type=int, metavar="R", help="the culprit (default: one in the middle)")
    fault.add_argument(
        "--factor",
        type=_positive,
        metavar="X",
        help="magnitude, mostly how many times as slow (the scenario's own)",
    )
    fault.add_argument(
        "--since", type=_seconds, metavar="S",
        help="seconds from the begin to the fault (120, global-slowdown: 2400 of real time)",
    )  # fmt: skip
    fault.add_argument("--seed", type=int, default=0, metavar="N", help="of everything random (0)")
    live = parser.add_argument_group("how it is served")
    live.add_argument("--run-id", default="drill", metavar="RUN_ID", help="name of the run (drill)")
    live.add_argument(
        "--speed", type=_positive, default=1.0, metavar="X",
        help="times as fast: divides all durations of the job; rules keep theirs",
    )  # fmt: skip
    live.add_argument(
        "--duration", type=_positive, metavar="S", help="end after so many seconds of real time"
    )
    where = live.add_mutually_exclusive_group()
    where.add_argument(
        "--listen", metavar="ADDRESS", help="serve the metrics here (:PORT or HOST:PORT), write no files"
    )
    add_segments_directory(where)
    live.add_argument("--quiet", action="store_true", help="no progress on stderr")


def _number(text: str, least: float, what: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not least <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
    return value


def _positive(text: str) -> float:
    return _number(text, 1e-9, "a number above 0")


def _seconds(text: str) -> float:
    return _number(text, 0.0, "a number of seconds")


def _share(text: str) -> float:
    value = _number(text, 0.0, "a share such as 0.02")
    if value > 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share such as 0.02")
    return value


def overview() -> str:
    """Every scenario, what happens and what must be said of it."""
    parts = []
    for scenario in SCENARIOS.values():
        size = _size(scenario.topology)
        text = f"{scenario.about} Expected: {scenario.expected}. Factor {scenario.factor:g}, {size}."
        parts.append(
            scenario.name + "\n" + textwrap.fill(text, 96, initial_indent="  ", subsequent_indent="  ")
        )
    return "\n".join(parts) + "\n"


def _size(topology: Topology) -> str:
    sizes = ", ".join(f"{name} {getattr(topology, name)}" for name in ("dp", "tp", "pp", "ep"))
    return f"{_counted(topology.ranks, 'rank')} ({sizes})"


def settings_of(
    scenario: Scenario,
    topology: Topology,
    profile: Profile,
    rank: int | None,
    factor: float | None,
    since: float,
    bytes_known: bool = True,
) -> Settings:
    """A scenario's settings, with its own where none are given.

    Raises:
        ScenarioError: There is no such rank.
    """
    if rank is None:
        stage = max(0, topology.pp // 2 - 1)
        rank = stage * topology.lanes + topology.lanes // 2
    if not 0 <= rank < topology.ranks:
        raise ScenarioError(f"there is no rank {rank}; the job has {topology.ranks}")
    factor = scenario.factor if factor is None else factor
    return Settings(topology, profile, rank, factor, since, bytes_known)


def run(args: argparse.Namespace) -> int:
    """Run the command: 0 at the end or after Ctrl-C, 2 when it can't be done."""
    from argus.exporter.web.server import AddressError
    from argus.tracer.place import PlaceError

    if args.list:
        sys.stdout.write(overview())
        return 0
    scenario = SCENARIOS.get(args.scenario)
    if scenario is None:
        what = f"there is no scenario {args.scenario!r}" if args.scenario else "name a scenario"
        print(f"argus drill: {what}; --list explains them: {', '.join(SCENARIOS)}", file=sys.stderr)
        return 2
    progress = Progress(quiet=args.quiet)
    try:
        with _signals() as stop:
            _run(args, scenario, progress, stop)
    except (TopologyError, ScenarioError, PlaceError, AddressError, OSError) as error:
        progress.clear()
        print(f"argus drill: {error}", file=sys.stderr)
        return 2
    return 0


@contextmanager
def _signals() -> Iterator[Event]:
    """An event that Ctrl-C and SIGTERM set."""
    stop = Event()
    numbers = (signal.SIGINT, signal.SIGTERM)
    previous = {number: signal.signal(number, lambda *_: stop.set()) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _run(args: argparse.Namespace, scenario: Scenario, progress: Progress, stop: Event) -> None:
    sizes = {name.replace("-", "_"): getattr(args, name.replace("-", "_")) for name in _SIZES}
    topology = replace(scenario.topology, **{name: n for name, n in sizes.items() if n is not None})
    profile = Profile(iteration=args.iteration, noise=args.noise)
    since = max(_SINCE, scenario.past * args.speed) if args.since is None else args.since
    settings = settings_of(scenario, topology, profile, args.rank, args.factor, since, not args.no_bytes)
    drill = scenario.build(settings)
    if drill.truth.must and settings.factor <= scenario.above:
        raise ScenarioError(
            f"--factor {settings.factor:g} is no fault; for {scenario.name} give more than {scenario.above:g}"
        )
    if topology.lanes == 1 and any(claim.alert in _AGAINST_PEERS for claim in drill.truth.must):
        raise ScenarioError(
            "each role would have one rank, with no peers to compare it with; give a larger dp"
        )
    if topology.ranks > _IN_MEMORY:
        print(
            f"argus drill: {topology.ranks} ranks take about {topology.ranks / 4000:.0f} GB of memory, "
            "and one exporter that serves all of them answers slowly",
            file=sys.stderr,
        )
    if args.segments:
        os.environ["ARGUS_DIR"] = str(args.segments)
    make: Make = anonymous if args.listen else _file
    player = Player(
        drill, topology, profile, args.run_id,
        seed=args.seed, start=_native.monotonic_ns() / 1e9, speed=args.speed, make=make,
        bytes_known=settings.bytes_known,
    )  # fmt: skip
    try:
        for line in _announcement(args, scenario, player, since):
            print(f"argus drill: {line}", file=sys.stderr)
        with _served(args.listen, player, progress, stop):
            _play(args, player, progress, stop)
    finally:
        player.close()
        progress.clear()


def _announcement(
    args: argparse.Namespace, scenario: Scenario, player: Player, since: float
) -> Iterator[str]:
    topology = player.topology
    nodes = _counted(topology.nodes, "node")
    yield f"{scenario.name}, run {args.run_id}, {_size(topology)} on {nodes}"
    truth = player.truth
    claims = [str(claim) for claim in truth.must]
    if truth.any_of:
        more = f" and {len(truth.any_of) - 3} others" if len(truth.any_of) > 3 else ""
        claims.append(f"one or more of {', '.join(map(str, truth.any_of[:3]))}{more}")
    if scenario.name != "healthy":
        yield f"the fault begins after {since / args.speed:g} s"
    yield "must be accused: " + ("; ".join(claims) if claims else "nobody")
    if truth.may:
        yield "true as well, and may come: " + "; ".join(sorted({claim.alert for claim in truth.may}))


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


@contextmanager
def _served(address: str | None, player: Player, progress: Progress, stop: Event) -> Iterator[None]:
    """An exporter of these segments only, which stays until it has told of the run's end; or nothing."""
    if address is None:
        yield
        return
    from argus.drill.source import PlayerSource
    from argus.exporter.flags import LINGER_S
    from argus.exporter.service import Exporter, Options

    with tempfile.TemporaryDirectory(prefix="argus-drill-") as nothing:
        options = Options(addresses=(address,), segments=Path(nothing))
        source = PlayerSource(player)
        with Exporter(options, source, gpus=player.gpus) as exporter:
            print(f"argus drill: serving {exporter.servers[0].url}", file=sys.stderr)
            yield
            player.close()
            progress.clear()
            if source.scraped:
                _linger(source, stop, LINGER_S)


def _linger(source: PlayerSource, stop: Event, seconds: float) -> None:
    """Stay until a scrape has shown the end, or another signal comes: ranks that nobody saw end seem lost."""
    stop.clear()
    print(
        f"argus drill: the run has ended; staying up to {seconds:g} s for a scrape to see it", file=sys.stderr
    )
    deadline = time.monotonic() + seconds
    while not source.told and time.monotonic() < deadline and not stop.wait(0.1):
        pass


def _play(args: argparse.Namespace, player: Player, progress: Progress, stop: Event) -> None:
    limit = time.monotonic() + (args.duration or float("inf"))
    for due, action in player.timeline():
        if stop.wait(max(0.0, min(due, limit) - time.monotonic())) or time.monotonic() >= limit:
            return
        action()
        progress(f"iteration {player.number}, {time.monotonic() - player.start:.0f} s")
    progress.clear()
    print("argus drill: the job stands still now; Ctrl-C ends it", file=sys.stderr)
    stop.wait(None if limit == float("inf") else max(0.0, limit - time.monotonic()))


def _file(**identity: object) -> Segment:
    from argus.tracer.place import create_segment

    return create_segment(**identity)  # type: ignore[arg-type]
