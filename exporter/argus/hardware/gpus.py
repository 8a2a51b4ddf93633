"""All GPUs of the node: found, watched, found again after the driver was reloaded.

A scrape takes what the watching threads have read last and waits for none of
them.  Where there is no NVML library or no driver, there is nothing to tell.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from argus.exporter.exposition.families import Point
from argus.exporter.registry import CollectorError
from argus.exporter.sources import Rank
from argus.hardware.reading import points

if TYPE_CHECKING:
    from argus.hardware.watch import Watch

_LOG = logging.getLogger(__name__)

INTERVAL_S = 5.0
"""Three readings in a scrape interval of 15 s."""

_WHERE_THERE_ARE_GPUS = (
    "where there are NVIDIA GPUs, the exporter's container needs the driver's utilities "
    "(NVIDIA_VISIBLE_DEVICES=all, NVIDIA_DRIVER_CAPABILITIES=utility)"
)
_RETRY_S = 60.0
_EVENT_MS = 200
_CLOSE_S = 2.0


class Gpus:
    """Watches the node's GPUs from its making to ``close``.

    Args:
        interval_s: Between two readings of a GPU.
        stale_s: Age from which on values are not told; None: three intervals, 10 s at least.
        retry_s: Between two looks for a driver.
    """

    def __init__(
        self, interval_s: float = INTERVAL_S, stale_s: float | None = None, retry_s: float = _RETRY_S
    ) -> None:
        self._interval_s = interval_s
        self._stale_s = max(10.0, 3 * interval_s) if stale_s is None else stale_s
        self._retry_s = retry_s
        self._stop = threading.Event()
        self._settled = threading.Event()
        self._began = time.monotonic()
        self._watches: list[Watch] = []
        self._missing = 0
        self._absent = False
        self._failed: str | None = None
        self._said: set[str] = set()
        self._thread = threading.Thread(target=self._run, name="argus-gpus", daemon=True)
        self._thread.start()

    @property
    def present(self) -> bool:
        """Whether there is anything to tell: GPUs, or why they can't be read."""
        return not self._absent if self._settled.is_set() else self._late()

    def wait(self, timeout_s: float) -> None:
        """Wait for the first reading of every GPU."""
        deadline = time.monotonic() + timeout_s
        self._settled.wait(timeout_s)
        while time.monotonic() < deadline and any(watch.status().up is None for watch in list(self._watches)):
            time.sleep(0.02)

    def points(self, ranks: Iterable[Rank]) -> Iterator[Point]:
        """The GPUs' series."""
        return points([watch.status() for watch in list(self._watches)], ranks)

    def check(self) -> Iterator[Point]:
        """Nothing to tell, but whether all is well.

        Raises:
            CollectorError: Values are missing.
        """
        troubles = [trouble for watch in list(self._watches) if (trouble := watch.trouble())]
        if self._missing:
            troubles.append(f"{self._missing} GPUs can't be opened or told apart; nvidia-smi names them")
        if self._failed:
            troubles.append(self._failed)
        elif self._late():
            troubles.append("NVML does not answer; run nvidia-smi on this machine")
        if troubles:
            raise CollectorError("; ".join(troubles))
        return iter(())

    def _late(self) -> bool:
        """Whether NVML has not even said whether it can be used."""
        return not self._settled.is_set() and time.monotonic() - self._began > self._stale_s

    def close(self) -> None:
        """Stop watching; a call that blocks is left behind."""
        self._stop.set()
        self._thread.join(_CLOSE_S)

    def _run(self) -> None:
        try:
            # Importing pynvml takes time that no scrape should wait for.
            from argus.hardware import nvml
        except Exception as error:  # another package of that name, an old one: whatever it does not have
            self._failed = f"pynvml can't be used: {error}; install it again: pip install -U nvidia-ml-py"
            self._settled.set()
            return
        while not self._stop.is_set():
            try:
                version = nvml.start()
            except nvml.AbsentError as error:
                self._absent, self._failed = True, None
                self._say(f"no GPUs are watched: {error}; {_WHERE_THERE_ARE_GPUS}")
            except Exception as error:
                self._absent, self._failed = False, str(error)
            else:
                self._absent, self._failed = False, None
                try:
                    self._watch(version)
                    self._failed = "the driver is gone; it is looked for again and again"
                except Exception as error:
                    self._failed = f"GPUs can't be watched: {error}"
                    _LOG.exception("watching GPUs failed")
            self._settled.set()
            self._stop.wait(self._retry_s)

    def _watch(self, version: str) -> None:
        """Until the driver is gone, or it is time to stop."""
        from argus.hardware import nvml
        from argus.hardware.watch import Watch
        from argus.hardware.xid import Events

        stop = threading.Event()
        watches: list[Watch] = []
        events: Events | None = None
        try:
            for gpu, handle in nvml.gpus(version):
                watches.append(Watch(gpu, handle, self._interval_s, self._stale_s, stop))
            self._watches, self._missing = watches, nvml.count() - len(watches)
            self._settled.set()
            _LOG.info("%d GPUs, driver %s", len(watches), version)
            events = Events(watches)
            while not self._stop.is_set() and not any(watch.driver_gone for watch in watches):
                if not events.wait(_EVENT_MS):
                    self._stop.wait(_EVENT_MS / 1e3)
        finally:
            stop.set()
            self._watches, self._missing = [], 0
            if events is not None:
                events.close()
            blocked = [watch for watch in watches if not watch.ended(_CLOSE_S / 2)]
            if not blocked:
                nvml.stop()

    def _say(self, message: str) -> None:
        if message not in self._said:
            self._said.add(message)
            _LOG.info("%s", message)
