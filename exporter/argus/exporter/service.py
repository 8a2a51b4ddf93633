"""The exporter put together: sources, registry, pages, servers, and the watch for new segments."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from argus import _native
from argus._native import __version__
from argus.exporter.exposition.classic import Classic
from argus.exporter.flight.pages import FlightPages
from argus.exporter.flight.receiver import Receiver
from argus.exporter.flight.store import Store, default_directory
from argus.exporter.lifecycle import RETENTION_S, FileSource
from argus.exporter.registry import GpuSource, Registry
from argus.exporter.selection import Series
from argus.exporter.sources import Rank, RankSource, merge
from argus.exporter.stacks.dumper import SUFFIX, Dumper
from argus.exporter.stacks.hang import LEAST_S, HangWatch
from argus.exporter.stacks.pages import StackPages
from argus.exporter.web.pages import Pages
from argus.exporter.web.server import DEFAULT_PORT, Server
from argus.exporter.web.settings import Settings
from argus.hardware.gpus import INTERVAL_S, Gpus
from argus.segment.files import base_directory

_LOG = logging.getLogger(__name__)

_DISCOVERY_S = 2.0


@dataclass(frozen=True)
class SnapshotOptions:
    """What becomes of flight recorders when an alert names a rank.

    Attributes:
        directory: Where snapshots go; None: ``argus.exporter.flight.store.default_directory``.
        most, most_bytes: How many are kept, and how large all together.
        interval_s: For so long the same alert leads to no other.
    """

    directory: Path | None = None
    most: int = 50
    most_bytes: int = 512 << 20
    interval_s: float = 600.0


@dataclass(frozen=True)
class DumpOptions:
    """What becomes of the stacks of ranks that hang.

    Attributes:
        directory: Where dumps go; None: ``stacks`` beside the snapshots' default directory.
        most, most_bytes: How many are kept, and how large all together.
        least_s: The least age of the last iteration that counts as a hang.
    """

    directory: Path | None = None
    most: int = 50
    most_bytes: int = 16 << 20
    least_s: float = LEAST_S


@dataclass(frozen=True)
class Options:
    """How the exporter runs; the flags of ``argus exporter``.

    Attributes:
        addresses: To listen on.
        telemetry_path: Path of the metrics.
        config_file: TLS and passwords, in exporter-toolkit's format.
        max_requests: Requests answered at once, per address.
        segments: Base directory of the segments; None for ``ARGUS_DIR`` or ``/dev/shm``.
        per_user, total: Most segments that are read.
        retention_s: How long a dead rank stays announced.
        classic: Which histograms carry classic buckets.
        series: Which series are served.
        disabled: Collectors that do not run.
        gpu_interval_s: Between two readings of a GPU.
        trace: Whether traces are served.
        snapshots: Where and how many snapshots are kept when alerts come; None: no alerts are taken.
        dumps: Where and how many dumps of hung ranks' stacks are kept; None: none are taken.
    """

    addresses: Sequence[str] = (f":{DEFAULT_PORT}",)
    telemetry_path: str = "/metrics"
    config_file: Path | None = None
    max_requests: int = 16
    segments: Path | None = None
    per_user: int = 128
    total: int = 1024
    retention_s: float = RETENTION_S
    classic: Classic = Classic.ITERATIONS
    series: Series = Series.ALL
    disabled: Collection[str] = ()
    gpu_interval_s: float = INTERVAL_S
    trace: bool = True
    snapshots: SnapshotOptions | None = None
    dumps: DumpOptions | None = None


def file_source(options: Options) -> FileSource:
    """The node's segments, but for those that this process writes itself."""
    return FileSource(
        options.segments or base_directory(),
        retention_s=options.retention_s,
        per_user=options.per_user,
        total=options.total,
        own=own_inodes,
    )


def watch_gpus(options: Options) -> Gpus | None:
    """The node's GPUs, unless that collector is switched off."""
    return None if "gpu" in options.disabled else Gpus(options.gpu_interval_s)


def own_inodes() -> set[tuple[int, int]]:
    """Device and inode of the segments that this process writes."""
    return {segment.inode for segment in _native.own_segments() if segment.inode is not None}


def _receiver(options: SnapshotOptions | None, sources: Sequence[RankSource]) -> Receiver | None:
    if options is None:
        return None
    store = Store(options.directory or default_directory(), options.most, options.most_bytes)
    return Receiver(sources, store, options.interval_s)


def _dumper(options: DumpOptions | None, sources: Sequence[RankSource]) -> Dumper | None:
    if options is None:
        return None
    directory = options.directory or default_directory("stacks")
    return Dumper(sources, Store(directory, options.most, options.most_bytes, SUFFIX))


class Exporter:
    """A running exporter; a context manager that stops it.

    Args:
        options: How it runs.
        extra: Sources besides the files; of equal ranks theirs stand.
        gpus: In the place of the node's own.

    Raises:
        AddressError, WebConfigError: The options can't be followed.
    """

    def __init__(self, options: Options, *extra: RankSource, gpus: GpuSource | None = None) -> None:
        self.files = file_source(options)
        sources = (*extra, self.files)
        receiver = _receiver(options.snapshots, sources)
        dumper = _dumper(options.dumps, sources)
        self._hangs = None
        if options.dumps is not None and dumper is not None:
            self._hangs = HangWatch(partial(self._peek, extra), [dumper], options.dumps.least_s)
        reporters = [each for each in (receiver, dumper) if each is not None]
        self._gpus = watch_gpus(options) if gpus is None else None
        self.registry = Registry(
            *sources,
            disabled=options.disabled,
            snapshots=lambda: (point for each in reporters for point in each.points()),
            gpus=gpus or self._gpus,
            series=options.series,
            version=__version__,
        )
        self._ready = threading.Event()
        self._stop = threading.Event()
        pages = Pages(
            self.registry,
            telemetry_path=options.telemetry_path,
            classic=options.classic,
            version=__version__,
            flight=FlightPages(sources, trace=options.trace, receiver=receiver),
            stacks=StackPages(sources, dumper.store if dumper is not None else None),
            ready=self._ready.is_set,
        )
        settings = Settings(options.config_file)
        self.servers: list[Server] = []
        try:
            for address in options.addresses:
                self.servers.append(Server(address, pages, settings, options.max_requests))
        except BaseException:
            for server in self.servers:
                server.server_close()
            if self._gpus is not None:
                self._gpus.close()
            raise
        self._threads = [
            threading.Thread(target=server.serve_forever, name="argus-exporter-web", daemon=True)
            for server in self.servers
        ]
        self._threads.append(
            threading.Thread(target=self._discover, name="argus-exporter-discovery", daemon=True)
        )
        for thread in self._threads:
            thread.start()
        if self._hangs is not None:
            self._hangs.start()
        for server in self.servers:
            _LOG.info("listening on %s", server.url)

    def _discover(self) -> None:
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                self.files.discover()
            except Exception:  # the next scrape reports it; the watch must go on
                _LOG.debug("discovery failed", exc_info=True)
            self._ready.set()
            # Where there is very much to look through, that must not take a core.
            self._stop.wait(max(_DISCOVERY_S, 20 * (time.monotonic() - began)))

    def _peek(self, extra: Sequence[RankSource], now_ns: int) -> list[Rank]:
        """The ranks now, without a scrape's consequences."""
        return merge([*(source.scan(now_ns) for source in extra), self.files.peek(now_ns)]).ranks

    def has_unseen_ends(self) -> bool:
        """Whether ranks ended cleanly that no scrape has shown yet."""
        return self.files.has_unseen_ends(_native.monotonic_ns())

    def close(self) -> None:
        """Stop listening, let answers that are under way leave, and let go of all segments."""
        if self._stop.is_set():
            return
        self._stop.set()
        for server in self.servers:
            server.shutdown()
            server.server_close()
        for server in self.servers:
            server.wait_for_answers()
        for thread in self._threads:
            thread.join(timeout=5)
        if self._hangs is not None:
            self._hangs.close()
        if self._gpus is not None:
            self._gpus.close()
        self.files.close()

    def __enter__(self) -> Exporter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
