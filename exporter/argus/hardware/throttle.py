"""For how long a GPU's clocks have been held down, by reason.

NVML counts the time of most reasons itself (nanoseconds since the driver was
loaded, ``nvmlDeviceGetViolationStatus``).  The finer ones exist as field values
too, but under numbers that have changed between driver versions; so these, and
any that the GPU does not count, are sampled: the reason in force at a reading
is taken to have been so since the reading before.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pynvml  # type: ignore[import-untyped]

from argus import catalogue
from argus.hardware.nvml import ask
from argus.hardware.reading import Value, known

_COUNTED = {
    "power": pynvml.NVML_PERF_POLICY_POWER,
    "thermal": pynvml.NVML_PERF_POLICY_THERMAL,
    "sync_boost": pynvml.NVML_PERF_POLICY_SYNC_BOOST,
    "board_limit": pynvml.NVML_PERF_POLICY_BOARD_LIMIT,
    "reliability": pynvml.NVML_PERF_POLICY_RELIABILITY,
}
_SAMPLED = {
    "power": pynvml.nvmlClocksThrottleReasonSwPowerCap,
    "thermal": pynvml.nvmlClocksThrottleReasonSwThermalSlowdown,
    "sync_boost": pynvml.nvmlClocksThrottleReasonSyncBoost,
    "hw_thermal": pynvml.nvmlClocksThrottleReasonHwThermalSlowdown,
    "power_brake": pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown,
}


class Throttle:
    """The counters of one GPU.

    Args:
        longest_s: A sample stands for no more than this, however late the next reading comes.
    """

    def __init__(self, longest_s: float) -> None:
        self._longest_s = longest_s
        self._sampled = dict.fromkeys(_SAMPLED, 0.0)
        self._last: float | None = None

    def values(self, handle: Any, now: float | None = None) -> Iterator[Value]:
        """Seconds by reason; ``now`` is ``time.monotonic()``.

        Raises:
            LostError, DriverError: See ``argus.hardware.nvml.ask``.
        """
        counted = {
            reason: status.violationTime / 1e9
            for reason, policy in _COUNTED.items()
            if (status := ask(pynvml.nvmlDeviceGetViolationStatus, handle, policy)) is not None
        }
        for reason, seconds in counted.items():
            yield from known(catalogue.GPU_THROTTLE, seconds, reason)
        mask = ask(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
        if mask is None:
            return
        now = time.monotonic() if now is None else now
        passed = 0.0 if self._last is None else min(now - self._last, self._longest_s)
        self._last = now
        for reason, bit in _SAMPLED.items():
            self._sampled[reason] += passed if mask & bit else 0.0
            if reason not in counted:
                yield from known(catalogue.GPU_THROTTLE, self._sampled[reason], reason)
