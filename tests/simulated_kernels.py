"""What the kernel library would have written into a simulated rank's segment."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from argus.segment import layout

QUANTILES = (0.5, 0.9, 0.99)
_BUCKETS = layout.CONSTANTS["HISTOGRAM_BUCKETS"]
_MIN_EXPONENT = layout.CONSTANTS["HISTOGRAM_MIN_EXPONENT"]
_MEMSET = 2
"""``enum argus_attribution``."""

Seconds = Mapping[str, npt.NDArray[np.float64]]
"""By kernel class: how long each kernel of an iteration took."""


def bucket(seconds: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Index of the histogram's bucket, whose upper bound is 2^(-20 + index / 8) s."""
    index = np.ceil((np.log2(seconds) - _MIN_EXPONENT) * 8).astype(np.int64)
    return np.clip(index, 0, _BUCKETS - 1)


def quantile(counts: npt.NDArray[np.int64], fraction: float) -> int:
    """Nanoseconds, as ``native/kernels/histograms.cpp`` interpolates them."""
    wanted = fraction * counts.sum()
    cumulated = np.cumsum(counts)
    index = int(np.argmax((cumulated >= wanted) & (counts > 0)))
    part = (wanted - (cumulated[index] - counts[index])) / counts[index]
    return int(2 ** (_MIN_EXPONENT + (index - 1 + part) / 8) * 1e9)


class Kernels:
    """Kernels of one rank, by class, since its start and over its window of iterations."""

    def __init__(self) -> None:
        self._total: dict[str, npt.NDArray[np.int64]] = {}
        self._sum: dict[str, float] = {}
        self._ring: deque[tuple[float, dict[str, npt.NDArray[np.int64]]]] = deque(maxlen=64)

    def iterate(self, end: float, kernels: Seconds) -> None:
        """An iteration of these kernels ended (s)."""
        counts = {}
        for name, seconds in kernels.items():
            counts[name] = np.bincount(bucket(seconds), minlength=_BUCKETS)
            self._total[name] = self._total.get(name, np.zeros(_BUCKETS, np.int64)) + counts[name]
            self._sum[name] = self._sum.get(name, 0.0) + float(seconds.sum())
        self._ring.append((end, counts))
        while len(self._ring) > 4 and self._ring[0][0] < end - 10:
            self._ring.popleft()

    def window(self, name: str) -> npt.NDArray[np.int64]:
        """Counts by bucket; zeros before there are four iterations."""
        nothing = np.zeros(_BUCKETS, np.int64)
        if len(self._ring) < 4:
            return nothing
        return sum((counts.get(name, nothing) for _, counts in self._ring), nothing)

    def add_to(self, snapshot: bytes) -> bytes:
        """A snapshot of the host's side with the device's; phases took as long there as the host says."""
        header = np.frombuffer(snapshot, layout.HEADER, 1).copy()
        entries = header[0]["section"]
        host = next(e for e in entries if e["id"] == layout.SECTIONS["ITERATIONS"])
        ring = np.frombuffer(
            snapshot, layout.RECORDS["ITERATIONS"], int(host["records"]), int(host["offset"])
        )
        body = bytearray(snapshot)
        for name, section in self._sections(ring).items():
            body.extend(bytes(-len(body) % 8))
            entry = entries[int(header[0]["sections"])]
            entry["id"], entry["record_bytes"] = layout.SECTIONS[name], section.dtype.itemsize
            entry["records"], entry["offset"] = len(section), len(body)
            header[0]["sections"] += 1
            body.extend(section.tobytes())
        header[0]["total_bytes"] = len(body)
        body[: layout.HEADER.itemsize] = header.tobytes()
        return bytes(body)

    def _sections(self, host: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
        device = np.zeros(1, layout.RECORDS["DEVICE"])
        device["classes_used"], device["attribution"] = len(self._total), _MEMSET
        device["records"] = sum(int(counts.sum()) for counts in self._total.values())
        device["iterations"] = host["ordinal"].max()
        iterations = np.zeros(len(host), layout.RECORDS["DEVICE_ITERATIONS"])
        for field in ("ordinal", "busy"):
            iterations[field] = host[field]
        iterations["attributed"] = 1
        columns = host["phase"].shape[1]
        # The reader takes the one that fits the phase's kind.
        iterations["compute"][:, :columns] = iterations["communication"][:, :columns] = host["phase"]
        phases = np.zeros(layout.CONSTANTS["DEVICE_PHASES"], layout.RECORDS["DEVICE_PHASES"])
        return {
            "KERNELS": self._classes(),
            "DEVICE": device,
            "DEVICE_PHASES": phases,
            "DEVICE_ITERATIONS": iterations,
        }

    def _classes(self) -> npt.NDArray[Any]:
        records = np.zeros(len(self._total), layout.RECORDS["KERNELS"])
        for record, (name, total) in zip(records, self._total.items(), strict=True):
            window = self.window(name)
            record["name"] = name.encode()
            record["seconds"]["bucket"] = total
            record["seconds"]["sum"] = round(self._sum[name] * 1e9)
            record["window_count"] = window.sum()
            if window.any():
                record["window_quantile"] = [quantile(window, fraction) for fraction in QUANTILES]
        return records
