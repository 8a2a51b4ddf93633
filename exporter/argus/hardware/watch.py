"""One GPU, read again and again by a thread of its own: a call that blocks holds up nobody else."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

from argus.hardware import nvml
from argus.hardware.reading import Gpu, Reading, Status
from argus.hardware.throttle import Throttle

_LOG = logging.getLogger(__name__)

_MOST_XIDS = 32
"""Different numbers kept; the driver knows some 150, a GPU in trouble reports a handful."""


class Watch:
    """Reads one GPU until it is told to stop.

    Args:
        gpu, handle: The GPU.
        interval_s: Between two readings.
        stale_s: From this age on values are not told any more.
        stop: Set when it is time to end.
    """

    def __init__(
        self, gpu: Gpu, handle: Any, interval_s: float, stale_s: float, stop: threading.Event
    ) -> None:
        self.gpu, self.handle = gpu, handle
        self.driver_gone = False
        self._interval_s, self._stale_s = interval_s, stale_s
        self._stop = stop
        self._throttle = Throttle(2 * interval_s)
        self._began = time.monotonic()
        self._reading: Reading | None = None
        self._lost = False
        self._blocked = False
        self._failure = ""
        self._xids: dict[int, tuple[int, float]] = {}
        self._thread = threading.Thread(target=self._run, name=f"argus-gpu-{gpu.index}", daemon=True)
        self._thread.start()

    def status(self) -> Status:
        """What is known now."""
        now = time.monotonic()
        reading, lost = self._reading, self._lost
        age = now - (reading.at if reading is not None else self._began)
        fresh = reading is not None and not lost and age <= self._stale_s
        xids = {xid: (count, now - last) for xid, (count, last) in self._xids.copy().items()}
        up = False if lost else True if fresh else None
        return Status(self.gpu, age, reading if fresh else None, up, xids)

    def trouble(self) -> str | None:
        """Why there are no values, if the GPU itself has not said; in words."""
        age = self.status().age_s
        blocked = age > self._stale_s and not self._lost
        if self._blocked and not blocked:
            _LOG.warning("GPU %d (%s) answers again", self.gpu.index, self.gpu.uuid)
        self._blocked = blocked
        if not blocked:
            return None
        return f"GPU {self.gpu.index} ({self.gpu.uuid}) has not answered for {age:.0f} s"

    def note_xid(self, xid: int) -> None:
        """The driver reported an error."""
        count, _ = self._xids.get(xid, (0, 0.0))
        if count or len(self._xids) < _MOST_XIDS:
            self._xids[xid] = (count + 1, time.monotonic())
        if not count:
            _LOG.warning("GPU %d (%s): the driver reports Xid %d", self.gpu.index, self.gpu.uuid, xid)

    def ended(self, timeout_s: float) -> bool:
        """Wait for the thread; False where a call still blocks it."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._read()
            except nvml.LostError as error:
                self._lose(error)
            except nvml.DriverError:
                self.driver_gone = True
                return
            except Exception as error:  # whatever the driver said, the next reading may be better
                if self._failure != repr(error):
                    self._failure = repr(error)
                    _LOG.exception("GPU %d (%s) could not be read", self.gpu.index, self.gpu.uuid)
            self._stop.wait(self._interval_s)

    def _read(self) -> None:
        at = time.monotonic()
        values = (*nvml.values(self.handle), *self._throttle.values(self.handle, at))
        if not values:
            return
        self._reading = Reading(at, values, nvml.mig_instances(self.handle))
        if self._lost:
            self._lost = False
            _LOG.warning("GPU %d (%s) is back", self.gpu.index, self.gpu.uuid)

    def _lose(self, error: Exception) -> None:
        if not self._lost:
            self._lost = True
            _LOG.error(
                "GPU %d (%s, PCI %s) has fallen off the bus or needs a reset (%s); dmesg names the Xid; "
                "drain the node", self.gpu.index, self.gpu.uuid, self.gpu.pci_bus_id or "unknown", error,
            )  # fmt: skip
