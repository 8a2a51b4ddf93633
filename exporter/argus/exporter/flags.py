"""The flags of ``argus exporter``."""

from __future__ import annotations

import argparse
from enum import Enum
from pathlib import Path
from typing import TypeVar

from argus._native import __version__
from argus.exporter.exposition.classic import Classic
from argus.exporter.flight.store import default_directory
from argus.exporter.lifecycle import RETENTION_S
from argus.exporter.registry import COLLECTORS
from argus.exporter.selection import Series
from argus.exporter.service import DumpOptions, SnapshotOptions
from argus.exporter.web.server import DEFAULT_PORT
from argus.hardware.gpus import INTERVAL_S
from argus.segment.files import DEFAULT_BASE

_Choice = TypeVar("_Choice", bound=Enum)

LINGER_S = 20.0
"""More than a scrape interval of 15 s, less than the 30 s that Kubernetes gives a pod to end."""

_LEFT_OUT = {
    "identity": "who ranks are and whether they are alive; alerts need it",
    "iterations": "progress and iteration times; alerts need it",
    "phases": "times of phases, and which are open; alerts of hangs need it",
    "collectives": "times, payload and sequence numbers of collectives; alerts of links and hangs need it",
    "kernels": "GPU kernels by class",
    "stacks": "samples of the training thread's stack, by category",
    "work": "tokens, samples and what else the script reports",
    "windows": "summaries of recent iterations; alerts need it",
    "tracer": "what tracing costs and drops",
    "gpu": "clocks, throttling, memory errors and links of the GPUs",
    "segments": "how many segments there are, and ranks that have ended; alerts need it",
    "process": "the exporter's own CPU time and memory",
    "snapshots": "how many snapshots alerts led to, and dumps of stacks hangs led to",
}
"""What each collector gives."""

DESCRIPTION = """\
Serves all training ranks of this node to Prometheus. Run one on each node, as
root, as the user of the jobs, or in their group. It finds ranks as they come
and go; ranks never wait for it and do not notice when it stops."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.description = DESCRIPTION
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    web = parser.add_argument_group("web")
    web.add_argument(
        "--web.listen-address", dest="addresses", action="append", metavar="ADDRESS",
        help=f"where to listen: :port, host:port or [v6]:port; may be repeated (default :{DEFAULT_PORT})",
    )  # fmt: skip
    web.add_argument(
        "--web.telemetry-path", dest="telemetry_path", type=_path, default="/metrics", metavar="PATH",
        help="path of the metrics (default /metrics)",
    )  # fmt: skip
    web.add_argument(
        "--web.config.file", dest="config_file", type=Path, metavar="FILE",
        help="TLS, client certificates and passwords, in exporter-toolkit's format",
    )  # fmt: skip
    web.add_argument(
        "--web.max-requests", dest="max_requests", type=_positive, default=16, metavar="N",
        help="requests answered at once, more get 503 (default 16)",
    )  # fmt: skip
    web.add_argument(
        "--web.linger", dest="linger", type=_seconds, default=LINGER_S, metavar="SECONDS",
        help="on SIGTERM, when ranks have ended cleanly since the last scrape: stay until the next one, at "
        f"most this long; a sidecar ends with its job (default {LINGER_S:.0f})",
    )  # fmt: skip
    segments = parser.add_argument_group("segments")
    segments.add_argument(
        "--segments.directory", "--segments-dir", dest="segments", type=Path, metavar="DIR",
        help=f"holds the users' directories argus-<uid> (default $ARGUS_DIR or {DEFAULT_BASE})",
    )  # fmt: skip
    segments.add_argument(
        "--segments.max-per-user", dest="per_user", type=_positive, default=128, metavar="N",
        help="segments read of one user (default 128)",
    )  # fmt: skip
    segments.add_argument(
        "--segments.max", dest="total", type=_positive, default=1024, metavar="N",
        help="segments read in all (default 1024)",
    )  # fmt: skip
    segments.add_argument(
        "--segments.retention", dest="retention_s", type=_seconds, default=RETENTION_S, metavar="SECONDS",
        help="how long a dead rank stays announced as down, and a finished run's count of ended ranks "
        f"stays; then a dead rank's file is removed (default {RETENTION_S:.0f})",
    )  # fmt: skip
    _add_flight(parser.add_argument_group("flight recorder"))
    _add_stacks(parser.add_argument_group("stacks"))
    collectors = parser.add_argument_group("collectors")
    collectors.add_argument(
        "--series", type=_series, default=Series.ALL, metavar="all|rules",
        help="rules: only series that the rules, argus report and argus doctor read, less than half of them; "
        "there are no histograms then, and panels of them, of heat and of power stay empty (default all)",
    )  # fmt: skip
    collectors.add_argument(
        "--histogram.classic", dest="classic", type=_classic, default=Classic.ITERATIONS,
        metavar="iterations|all|none",
        help="classic buckets of histograms in text formats: of iterations, or of phases, collectives and "
        "kernels too, which triples a rank's series; native buckets come over protobuf whatever this says, "
        "with classic ones beside them unless it is none (default iterations)",
    )  # fmt: skip
    for name in COLLECTORS:
        collectors.add_argument(
            f"--no-collector.{name}", dest="disabled", action="append_const", const=name,
            help=f"leave out {_LEFT_OUT[name]}",
        )  # fmt: skip
    collectors.add_argument(
        "--gpu.interval", dest="gpu_interval", type=_interval, default=INTERVAL_S, metavar="SECONDS",
        help=f"how often GPUs are read, whatever the scrapes do (default {INTERVAL_S:.0f})",
    )  # fmt: skip
    parser.add_argument("--once", action="store_true", help="print one scrape and exit")
    parser.add_argument(
        "--log.level", dest="log_level", default="info", choices=("debug", "info", "warn", "error"),
        help="least severe messages that are logged (default info)",
    )  # fmt: skip
    parser.add_argument("--version", action="version", version=f"argus exporter {__version__}")


def _add_flight(flight: argparse._ArgumentGroup) -> None:
    flight.add_argument(
        "--flight.trace", dest="trace", type=_flag, default=True, metavar="true|false",
        help="serve what ranks did last at /trace, for argus trace --exporter and Perfetto (default true)",
    )  # fmt: skip
    flight.add_argument(
        "--flight.alerts", dest="alerts", type=_flag, default=True, metavar="true|false",
        help="take Alertmanager's webhook at /alerts: an alert that names a rank of this node leads to a "
        "snapshot of it and of two peers, listed at /snapshots (default true)",
    )  # fmt: skip
    flight.add_argument(
        "--snapshots.directory", dest="snapshots", type=Path, metavar="DIR",
        help=f"where snapshots are kept (default {default_directory()})",
    )  # fmt: skip
    flight.add_argument(
        "--snapshots.max", dest="snapshots_most", type=_positive, default=SnapshotOptions.most, metavar="N",
        help=f"how many are kept, the oldest go first (default {SnapshotOptions.most})",
    )  # fmt: skip
    flight.add_argument(
        "--snapshots.max-bytes", dest="snapshots_bytes", type=_positive, metavar="BYTES",
        default=SnapshotOptions.most_bytes,
        help=f"how large they may be together (default {SnapshotOptions.most_bytes >> 20} MiB)",
    )  # fmt: skip
    flight.add_argument(
        "--snapshots.interval", dest="snapshots_interval", type=_seconds, metavar="SECONDS",
        default=SnapshotOptions.interval_s,
        help="for so long the same alert about the same rank leads to no other snapshot "
        f"(default {SnapshotOptions.interval_s:.0f})",
    )  # fmt: skip


def _add_stacks(stacks: argparse._ArgumentGroup) -> None:
    stacks.add_argument(
        "--stacks.dumps", dest="dumps", type=_flag, default=True, metavar="true|false",
        help="when no rank of a run makes progress on this node, keep its ranks' stacks by py-spy, listed at "
        "/stacks; needs the right to trace the ranks' processes (default true)",
    )  # fmt: skip
    stacks.add_argument(
        "--stacks.directory", dest="dumps_directory", type=Path, metavar="DIR",
        help=f"where they are kept (default {default_directory('stacks')})",
    )  # fmt: skip
    stacks.add_argument(
        "--stacks.max", dest="dumps_most", type=_positive, default=DumpOptions.most, metavar="N",
        help=f"how many are kept, the oldest go first (default {DumpOptions.most})",
    )  # fmt: skip
    stacks.add_argument(
        "--stacks.hang-seconds", dest="hang_s", type=_seconds, default=DumpOptions.least_s, metavar="SECONDS",
        help="a run hangs when its last iteration ended five times its slowest recent iteration ago, and at "
        f"least so long (default {DumpOptions.least_s:.0f})",
    )  # fmt: skip


def _positive(text_: str) -> int:
    if not text_.isascii() or not text_.isdigit() or int(text_) < 1:
        raise argparse.ArgumentTypeError(f"{text_!r} is not a whole number above 0")
    return int(text_)


def _seconds(text_: str) -> float:
    try:
        value = float(text_)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e9:
        raise argparse.ArgumentTypeError(f"{text_!r} is not a number of seconds")
    return value


def _interval(text_: str) -> float:
    value = _seconds(text_)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text_!r} is too often; take 1 s at least")
    return value


def _flag(text_: str) -> bool:
    if text_ not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"{text_!r} is neither true nor false")
    return text_ == "true"


def _classic(text_: str) -> Classic:
    return _one_of(Classic, text_)


def _series(text_: str) -> Series:
    return _one_of(Series, text_)


def _one_of(choice: type[_Choice], text_: str) -> _Choice:
    try:
        return choice(text_)
    except ValueError:
        choices = ", ".join(each.value for each in choice)
        raise argparse.ArgumentTypeError(f"{text_!r} is none of {choices}") from None


def _path(text_: str) -> str:
    if not text_.startswith("/") or text_ == "/" or text_.startswith("/-/") or "?" in text_ or "#" in text_:
        raise argparse.ArgumentTypeError(f"{text_!r} is no usable path; it starts with / and is not / itself")
    return text_
