"""What the exporter says about itself and the segments of its node."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, ProcessCollector

from argus import catalogue
from argus.catalogue import Metric
from argus.exporter.exposition.families import Point
from argus.exporter.sources import Scan
from argus.segment.layout import CONSTANTS


def segments(scan: Scan) -> Iterator[Point]:
    """Segments by state, and ranks that ended cleanly by run."""
    for state, count in scan.segments.items():
        yield Point(catalogue.SEGMENTS, (state,), count)
    for run_id, count in scan.ended.items():
        yield Point(catalogue.RANKS_ENDED, (run_id,), count)


def build_info(version: str) -> list[Point]:
    """Version of the exporter, of the segment layout it reads, and of Python."""
    labels = (version, str(CONSTANTS["LAYOUT_VERSION"]), platform.python_version())
    return [Point(catalogue.BUILD_INFO, labels, 1)]


class Process:
    """The usual ``process_*`` metrics of this process, from prometheus_client.

    Args:
        proc: Where ``/proc`` is mounted.
    """

    def __init__(self, proc: str = "/proc") -> None:
        self._collector = ProcessCollector(proc=proc, registry=CollectorRegistry())

    def collect(self) -> Iterable[Point]:
        """CPU seconds, memory, file descriptors and start time."""
        for family in self._collector.collect():
            for sample in family.samples:
                yield Point(
                    Metric(sample.name, family.type, family.documentation.rstrip(".") + ".", ()),
                    (),
                    sample.value,
                )
