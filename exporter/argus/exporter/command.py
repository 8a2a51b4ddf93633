"""``argus exporter``: from flags to a running exporter."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import time
from contextlib import suppress
from queue import Empty, SimpleQueue

from argus._native import __version__
from argus.exporter.exposition import text
from argus.exporter.flags import add_arguments
from argus.exporter.limits import affordable_segments
from argus.exporter.registry import Registry
from argus.exporter.service import DumpOptions, Exporter, Options, SnapshotOptions, file_source, watch_gpus
from argus.exporter.web.config import WebConfigError
from argus.exporter.web.server import AddressError

__all__ = ["add_arguments", "run"]

_LOG = logging.getLogger("argus.exporter")

_ONCE_S = 5.0
"""How long --once waits for GPUs."""


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT; 2 when the flags can't be followed."""
    level = {"warn": "WARNING"}.get(args.log_level, args.log_level.upper())
    logging.basicConfig(
        level=level, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    options = Options(
        addresses=args.addresses or Options.addresses,
        telemetry_path=args.telemetry_path,
        config_file=args.config_file,
        max_requests=args.max_requests,
        segments=args.segments,
        per_user=args.per_user,
        total=_affordable(args.total),
        retention_s=args.retention_s,
        classic=args.classic,
        series=args.series,
        disabled=args.disabled or (),
        gpu_interval_s=args.gpu_interval,
        trace=args.trace,
        snapshots=SnapshotOptions(
            args.snapshots, args.snapshots_most, args.snapshots_bytes, args.snapshots_interval
        )
        if args.alerts
        else None,
        dumps=DumpOptions(directory=args.dumps_directory, most=args.dumps_most, least_s=args.hang_s)
        if args.dumps
        else None,
    )
    if args.once:
        gpus = watch_gpus(options)
        if gpus is not None:
            gpus.wait(_ONCE_S)
        registry = Registry(
            file_source(options), disabled=options.disabled, gpus=gpus, series=options.series,
            version=__version__,
        )  # fmt: skip
        sys.stdout.buffer.write(text.encode(registry.collect(), classic=options.classic))
        if gpus is not None:
            gpus.close()
        return 0
    return _serve(options, args.linger)


def _affordable(total: int) -> int:
    affordable = affordable_segments(total)
    if affordable < total:
        _LOG.warning(
            "at most %d segments are read, for that many files may be open: raise the limit (ulimit -n, "
            "LimitNOFILE) by %d", affordable, total - affordable,
        )  # fmt: skip
    return affordable


def _serve(options: Options, linger_s: float) -> int:
    signals: SimpleQueue[int] = SimpleQueue()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: signals.put(number))
    try:
        exporter = Exporter(options)
    except (AddressError, WebConfigError) as error:
        print(f"argus exporter: {error}", file=sys.stderr)
        return 2
    with exporter:
        _LOG.info("version %s, process %d, segments below %s", __version__, os.getpid(), exporter.files.base)
        if signals.get() == signal.SIGTERM:
            _linger(exporter, signals, linger_s)
        _LOG.info("stopping")
    return 0


def _linger(exporter: Exporter, signals: SimpleQueue[int], seconds: float) -> None:
    """Stay until a scrape has shown the latest clean ends, or another signal comes.

    A sidecar is stopped when its job has ended; what it did not tell looks like ranks that vanished.
    """
    deadline = time.monotonic() + seconds
    said = False
    while exporter.has_unseen_ends() and (left := deadline - time.monotonic()) > 0:
        if not said:
            said = True
            _LOG.info("ranks have ended since the last scrape: staying for the next one, up to %g s", seconds)
        with suppress(Empty):
            signals.get(timeout=min(left, 0.5))
            return
