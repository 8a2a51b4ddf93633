"""NVML in ARGUS's terms: base units, and None for whatever a GPU or driver does not support.

Any call may block for as long as the driver does; callers are threads of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pynvml  # type: ignore[import-untyped]

from argus import catalogue
from argus.hardware.reading import Gpu, Value, bus_id, known

_LOST = (pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED)
_ABSENT = (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
_GONE = (pynvml.NVML_ERROR_UNINITIALIZED, pynvml.NVML_ERROR_DRIVER_NOT_LOADED)

_CLOCKS = {"sm": pynvml.NVML_CLOCK_SM, "memory": pynvml.NVML_CLOCK_MEM}
_SEVERITIES = {
    "corrected": pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED,
    "uncorrected": pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
}
_LIFETIMES = {"volatile": pynvml.NVML_VOLATILE_ECC, "aggregate": pynvml.NVML_AGGREGATE_ECC}
_NVLINK_ERRORS = {
    "crc_flit": (pynvml.NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL, pynvml.NVML_NVLINK_ERROR_DL_CRC_FLIT),
    "crc_data": (pynvml.NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL, pynvml.NVML_NVLINK_ERROR_DL_CRC_DATA),
    "replay": (pynvml.NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL, pynvml.NVML_NVLINK_ERROR_DL_REPLAY),
    "recovery": (pynvml.NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL, pynvml.NVML_NVLINK_ERROR_DL_RECOVERY),
}
"""The total of all links as a field, and where there is none, a counter of each link."""

_FIELD_VALUE = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Member of the value's union by ``nvmlValueType_t``."""


MOST_GPUS = 256
"""More are not believed: no machine has them, and each costs a thread."""
_MOST_INSTANCES = 64


class LostError(Exception):
    """The GPU does not answer any more."""


class AbsentError(Exception):
    """This machine has no NVML, or no driver: there is nothing to watch."""


class DriverError(Exception):
    """NVML can't be used, or not any more; the message says why and the mend."""


def start() -> str:
    """Initialise NVML; the driver's version.

    Raises:
        AbsentError: There is no library or no driver.
        DriverError: There is, and it does not work.
    """
    try:
        pynvml.nvmlInit()
        return str(ask(pynvml.nvmlSystemGetDriverVersion) or "")
    except pynvml.NVMLError as error:
        if error.value in _ABSENT:
            raise AbsentError(str(error)) from None
        mend = "run nvidia-smi on this machine to see the driver's own answer"
        if error.value == pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH:
            mend = "the driver was updated while in use: reload its modules, or restart the machine"
        raise DriverError(f"NVML can't be used: {error}; {mend}") from None


def stop() -> None:
    """Let go of NVML, if it is still there."""
    with suppress(LostError, DriverError):
        ask(pynvml.nvmlShutdown)


def ask(call: Callable[..., Any], *arguments: Any) -> Any:
    """What NVML answers; None: not supported, not permitted, or not known to this driver.

    Raises:
        LostError: The GPU has fallen off the bus, or needs a reset.
        DriverError: The driver is gone.
    """
    try:
        return call(*arguments)
    except pynvml.NVMLError as error:
        if error.value in _LOST:
            raise LostError(str(error)) from None
        if error.value in _GONE:
            raise DriverError(f"the driver is gone: {error}") from None
        return None
    except UnicodeDecodeError:
        return None


def gpus(driver_version: str) -> Iterator[tuple[Gpu, Any]]:
    """Every GPU with its handle; one that is lost already has no name and is left out.

    Raises:
        DriverError: The driver is gone.
    """
    seen = set()
    for index in range(min(count(), MOST_GPUS)):
        try:
            handle = ask(pynvml.nvmlDeviceGetHandleByIndex, index)
            uuid = None if handle is None else ask(pynvml.nvmlDeviceGetUUID, handle)
            if not uuid or uuid in seen:
                continue
            pci = ask(pynvml.nvmlDeviceGetPciInfo, handle)
            model = ask(pynvml.nvmlDeviceGetName, handle) or ""
        except LostError:
            continue
        seen.add(uuid)
        yield Gpu(index, uuid, ask(_bus_id, pci) or "" if pci else "", model, driver_version), handle


def count() -> int:
    """How many GPUs there should be, lost ones included."""
    return int(ask(pynvml.nvmlDeviceGetCount) or 0)


def _bus_id(pci: Any) -> str:
    text: str | bytes = pci.busId
    return bus_id(text.decode() if isinstance(text, bytes) else text)


def mig_instances(handle: Any) -> frozenset[str]:
    """UUIDs of the GPU's MIG instances, none where it is not divided."""
    mode = ask(pynvml.nvmlDeviceGetMigMode, handle)
    if mode is None or mode[0] != pynvml.NVML_DEVICE_MIG_ENABLE:
        return frozenset()
    found = set()
    most = ask(pynvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0
    for index in range(min(most, _MOST_INSTANCES)):
        instance = ask(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, index)
        if instance is not None:
            found.add(ask(pynvml.nvmlDeviceGetUUID, instance))
    return frozenset(found - {None})


def values(handle: Any) -> Iterator[Value]:
    """All that a GPU tells, throttling aside (``argus.hardware.throttle``).

    Raises:
        LostError, DriverError: See ``ask``.
    """
    for part in (_clocks, _heat, _power, _memory, _pcie, _nvlink, _use):
        yield from part(handle)


def _clocks(handle: Any) -> Iterator[Value]:
    for name, clock in _CLOCKS.items():
        now = ask(pynvml.nvmlDeviceGetClockInfo, handle, clock)
        most = ask(pynvml.nvmlDeviceGetMaxClockInfo, handle, clock)
        yield from known(catalogue.GPU_CLOCK, now, name, scale=1e6)
        yield from known(catalogue.GPU_CLOCK_MAX, most, name, scale=1e6)


def _heat(handle: Any) -> Iterator[Value]:
    core = ask(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU)
    memory = field(handle, pynvml.NVML_FI_DEV_MEMORY_TEMP)
    yield from known(catalogue.GPU_TEMPERATURE, core, "gpu")
    if memory:  # 0 where there is no sensor
        yield from known(catalogue.GPU_TEMPERATURE, memory, "memory")
    for sensor, threshold in (
        ("gpu", pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN),
        ("memory", pynvml.NVML_TEMPERATURE_THRESHOLD_MEM_MAX),
    ):
        limit = ask(pynvml.nvmlDeviceGetTemperatureThreshold, handle, threshold)
        yield from known(catalogue.GPU_TEMPERATURE_LIMIT, limit or None, sensor)


def _power(handle: Any) -> Iterator[Value]:
    for metric, call in (
        (catalogue.GPU_POWER, pynvml.nvmlDeviceGetPowerUsage),
        (catalogue.GPU_POWER_LIMIT, pynvml.nvmlDeviceGetEnforcedPowerLimit),
        (catalogue.GPU_ENERGY, pynvml.nvmlDeviceGetTotalEnergyConsumption),
    ):
        yield from known(metric, ask(call, handle), scale=1e-3)


def _memory(handle: Any) -> Iterator[Value]:
    for severity, kind in _SEVERITIES.items():
        for lifetime, counter in _LIFETIMES.items():
            errors = ask(pynvml.nvmlDeviceGetTotalEccErrors, handle, kind, counter)
            yield from known(catalogue.GPU_ECC, errors, severity, lifetime)
    rows = ask(pynvml.nvmlDeviceGetRemappedRows, handle)
    if rows is not None:
        corrected, uncorrected, pending, failed = rows
        yield from known(catalogue.GPU_REMAPPED_ROWS, corrected, "corrected")
        yield from known(catalogue.GPU_REMAPPED_ROWS, uncorrected, "uncorrected")
        yield from known(catalogue.GPU_REMAP_PENDING, int(bool(pending)))
        yield from known(catalogue.GPU_REMAP_FAILED, int(bool(failed)))


def _pcie(handle: Any) -> Iterator[Value]:
    for metric, call in (
        (catalogue.GPU_PCIE_GENERATION, pynvml.nvmlDeviceGetCurrPcieLinkGeneration),
        (catalogue.GPU_PCIE_GENERATION_MAX, pynvml.nvmlDeviceGetMaxPcieLinkGeneration),
        (catalogue.GPU_PCIE_LANES, pynvml.nvmlDeviceGetCurrPcieLinkWidth),
        (catalogue.GPU_PCIE_LANES_MAX, pynvml.nvmlDeviceGetMaxPcieLinkWidth),
    ):
        # 0 where it hangs on something else than PCIe.
        yield from known(metric, ask(call, handle) or None)
    yield from known(catalogue.GPU_PCIE_REPLAYS, ask(pynvml.nvmlDeviceGetPcieReplayCounter, handle))


def _nvlink(handle: Any) -> Iterator[Value]:
    links = range(pynvml.NVML_NVLINK_MAX_LINKS)
    states = {link: ask(pynvml.nvmlDeviceGetNvLinkState, handle, link) for link in links}
    present = [link for link, state in states.items() if state is not None]
    if not present:
        return
    active = sum(bool(states[link]) for link in present)
    yield from known(catalogue.GPU_NVLINKS, active, "active")
    yield from known(catalogue.GPU_NVLINKS, len(present) - active, "inactive")
    for name, (total, counter) in _NVLINK_ERRORS.items():
        errors = field(handle, total)
        if errors is None:
            each = [ask(pynvml.nvmlDeviceGetNvLinkErrorCounter, handle, link, counter) for link in present]
            counted = [number for number in each if number is not None]
            errors = sum(counted) if counted else None
        yield from known(catalogue.GPU_NVLINK_ERRORS, errors, name)


def _use(handle: Any) -> Iterator[Value]:
    rates = ask(pynvml.nvmlDeviceGetUtilizationRates, handle)
    yield from known(catalogue.GPU_UTILIZATION, rates and rates.gpu, scale=0.01)
    processes = ask(pynvml.nvmlDeviceGetComputeRunningProcesses, handle)
    yield from known(catalogue.GPU_PROCESSES, None if processes is None else len(processes))


def field(handle: Any, number: int) -> float | None:
    """One of NVML's field values."""
    answer = ask(pynvml.nvmlDeviceGetFieldValues, handle, [number])
    if answer is None or answer[0].nvmlReturn != pynvml.NVML_SUCCESS:
        return None
    if not 0 <= answer[0].valueType < len(_FIELD_VALUE):
        return None
    value: float = getattr(answer[0].value, _FIELD_VALUE[answer[0].valueType])
    return value
