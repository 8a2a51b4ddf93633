"""Errors that the driver reports by itself (Xid), as NVML's events."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Iterable
from typing import Any

import pynvml  # type: ignore[import-untyped]

from argus.hardware.nvml import DriverError, LostError, ask
from argus.hardware.watch import Watch

_LOG = logging.getLogger(__name__)


class Events:
    """Subscribed to the Xid events of these GPUs, as far as the driver has them.

    Events go to every subscriber: others are not robbed of theirs.
    """

    def __init__(self, watches: Iterable[Watch]) -> None:
        self._set: Any = ask(pynvml.nvmlEventSetCreate)
        self._watches: dict[int | None, Watch] = {}
        for watch in watches if self._set is not None else ():
            try:
                pynvml.nvmlDeviceRegisterEvents(watch.handle, pynvml.nvmlEventTypeXidCriticalError, self._set)
            except pynvml.NVMLError as error:
                _LOG.info("GPU %d tells no Xid errors: %s", watch.gpu.index, error)
            else:
                self._watches[_address(watch.handle)] = watch

    def wait(self, timeout_ms: int) -> bool:
        """Wait for an event and note it; False where waiting is not possible, and nobody waited."""
        if not self._watches:
            return False
        try:
            event = pynvml.nvmlEventSetWait_v2(self._set, timeout_ms)
        except pynvml.NVMLError as error:
            return bool(error.value == pynvml.NVML_ERROR_TIMEOUT)
        watch = self._watches.get(_address(event.device))
        if watch is not None and event.eventType == pynvml.nvmlEventTypeXidCriticalError:
            watch.note_xid(int(event.eventData))
        return True

    def close(self) -> None:
        """Unsubscribe."""
        if self._set is not None:
            try:
                ask(pynvml.nvmlEventSetFree, self._set)
            except (LostError, DriverError):
                _LOG.debug("the event set could not be freed", exc_info=True)


def _address(handle: Any) -> int | None:
    """Handles are pointers, the same ones in events."""
    return ctypes.cast(handle, ctypes.c_void_p).value
