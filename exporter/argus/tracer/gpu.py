"""Which GPU this rank uses, as the CUDA driver in this process says.

The driver knows what ``CUDA_VISIBLE_DEVICES``, MIG and containers made of the
numbering.  Nothing here loads it or starts CUDA: a rank that has not used its
GPU yet simply is asked again later.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple
from uuid import UUID

_LIBRARY = "libcuda.so.1"


class Gpu(NamedTuple):
    """A GPU, as NVML names it too.

    Attributes:
        uuid: ``GPU-…``, or of the MIG instance, ``MIG-…``.
        pci_bus_id: Such as ``0000:3b:00.0``.
    """

    uuid: str
    pci_bus_id: str


def find() -> Gpu | None:
    """The GPU in use; None where CUDA is not, or not yet."""
    try:
        import ctypes

        cuda = ctypes.CDLL(_LIBRARY, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        device = _device(ctypes, cuda)
        return None if device is None else _names(ctypes, cuda, device)
    except (ImportError, OSError, AttributeError):  # no ctypes, no driver here, or one without these calls
        return None


def _device(ctypes: Any, cuda: Any) -> int | None:
    """The device of this thread's context; else the only one that has a context at all."""
    device = ctypes.c_int()
    if cuda.cuCtxGetDevice(ctypes.byref(device)) == 0:
        return int(device.value)
    count = ctypes.c_int()
    if cuda.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return None
    used = [number for number in range(count.value) if _is_used(ctypes, cuda, number)]
    return used[0] if len(used) == 1 else None


def _is_used(ctypes: Any, cuda: Any, device: int) -> bool:
    flags, active = ctypes.c_uint(), ctypes.c_int()
    state = cuda.cuDevicePrimaryCtxGetState(device, ctypes.byref(flags), ctypes.byref(active))
    return state == 0 and bool(active.value)


def _names(ctypes: Any, cuda: Any, device: int) -> Gpu | None:
    # The second version of the call gives a MIG instance's own, the first that of the whole GPU.
    whole = _uuid(ctypes, getattr(cuda, "cuDeviceGetUuid", None), device)
    own = _uuid(ctypes, getattr(cuda, "cuDeviceGetUuid_v2", None), device) or whole
    address = ctypes.create_string_buffer(32)
    known = cuda.cuDeviceGetPCIBusId(address, len(address), device) == 0
    name = f"{'GPU' if whole in (None, own) else 'MIG'}-{own}" if own else ""
    place = address.value.decode("ascii", "replace").lower() if known else ""
    return Gpu(name, place) if name or place else None


def _uuid(ctypes: Any, call: Any, device: int) -> str | None:
    raw = ctypes.create_string_buffer(16)
    return str(UUID(bytes=raw.raw)) if call is not None and call(raw, device) == 0 else None
