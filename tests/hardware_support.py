"""Builds and steers the stand-ins for NVIDIA's libraries in ``tests/standin/``."""

from __future__ import annotations

import atexit
import ctypes
import functools
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

STANDIN = Path(__file__).resolve().parent / "standin"
_SOURCES = {
    "libnvidia-ml.so.1": ("nvml.c",),
    "libcuda.so.1": ("cuda_device.c",),
    "new-libcuda.so.1": ("cuda_device.c", "-DSTANDIN_NEW"),
}

UUIDS = [f"GPU-00000000-0000-0000-0000-{number:012}" for number in range(8)]
"""Of the stand-in's GPUs; their PCI addresses are 0000:3a:00.0 and on."""


@functools.cache
def libraries() -> Path:
    """The folder of the stand-ins, for ``LD_LIBRARY_PATH``; warnings are errors."""
    if shutil.which("gcc") is None:
        pytest.skip("no gcc")
    out = Path(tempfile.mkdtemp(prefix="argus-nvidia-"))
    atexit.register(shutil.rmtree, out, ignore_errors=True)
    flags = ["-std=c11", "-O2", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror", "-lpthread"]
    for name, (source, *more) in _SOURCES.items():
        soname = f"-Wl,-soname,{name.removeprefix('new-')}"
        command = ["gcc", str(STANDIN / source), *flags, *more, soname, "-o", str(out / name)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
    return out


class Nvml:
    """The stand-in for NVML in this process: pynvml finds it by its name, for it is loaded already."""

    NO_DRIVER = 9
    MISMATCH = 18

    def __init__(self) -> None:
        self._library = ctypes.CDLL(str(libraries() / "libnvidia-ml.so.1"))

    def reset(self, gpus: int) -> None:
        """So many GPUs that support nothing."""
        self._library.standin_reset(gpus)

    def set(self, gpu: int, **values: int) -> None:
        """What a GPU answers, by key; ``__`` stands for a dot."""
        for key, number in values.items():
            name = key.replace("__", ".").encode()
            self._library.standin_set(gpu, name, ctypes.c_ulonglong(number))

    def text(self, gpu: int, uuid: bytes, bus: bytes, name: bytes) -> None:
        """Other texts, UTF-8 or not."""
        self._library.standin_text(gpu, uuid, bus, name)

    def claim(self, gpus: int) -> None:
        """So many GPUs are said to be there."""
        self._library.standin_claim(ctypes.c_uint(gpus))

    def lose(self, gpu: int, lost: bool = True) -> None:
        """It falls off the bus, or comes back."""
        self._library.standin_lose(gpu, int(lost))

    def unload(self) -> None:
        """The driver goes away; initialisation fails until it is told otherwise."""
        self.answer_init(self.NO_DRIVER)
        self._library.standin_unload(1)

    def load(self) -> None:
        """The driver is back."""
        self._library.standin_unload(0)
        self.answer_init(0)

    def hold(self, gpu: int, held: bool = True) -> None:
        """Calls about it return when it is released; initialisation goes with GPU 7."""
        self._library.standin_hold(gpu, int(held))

    def is_waiting(self, gpu: int) -> bool:
        """Whether a call about it is held."""
        return bool(self._library.standin_waiting(gpu))

    def instance(self, gpu: int, index: int, uuid: str) -> None:
        """A MIG instance."""
        self._library.standin_instance(gpu, index, uuid.encode())

    def xid(self, gpu: int, xid: int) -> None:
        """The driver reports an error."""
        self._library.standin_xid(gpu, ctypes.c_ulonglong(xid))

    def answer_init(self, result: int) -> None:
        """What initialisation returns."""
        self._library.standin_init_result(result)

    def counts(self) -> tuple[int, int]:
        """How often it was initialised and shut down."""
        return self._library.standin_inits(), self._library.standin_shutdowns()

    @property
    def handles(self) -> list[Any]:
        """Handles of the GPUs, as pynvml has them."""
        import pynvml

        pynvml.nvmlInit()
        return [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
