"""Starting the kernel tracer of this process (``native/kernels/``), where there is a GPU."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from argus import _native

_DEVICES = ("/dev/nvidiactl", "/dev/dxg")  # Linux; WSL
_OFF = ("0", "false", "no", "off")
_ATTRIBUTION = "ARGUS_KERNEL_ATTRIBUTION"
_ATTRIBUTIONS = ("auto", "memset", "call", "api", "none")


def library() -> Path:
    """The library, also for ``CUDA_INJECTION64_PATH``."""
    return Path(__file__).resolve().parent.parent / "libargus_kernels.so"


def start(environ: Mapping[str, str] | None = None) -> str | None:
    """Start recording kernels; to be called before the segment is made, better before CUDA starts.

    Returns:
        None where kernels are recorded, empty where nobody wants them or there
        is no GPU, else why they are not, in words.
    """
    environ = os.environ if environ is None else environ
    wanted = environ.get("ARGUS_KERNELS", "").strip().lower()
    if wanted in _OFF:
        return ""
    injected = environ.get("CUDA_INJECTION64_PATH", "").endswith(library().name)
    if not wanted and not injected and not any(map(os.path.exists, _DEVICES)):
        return ""
    path = environ["CUDA_INJECTION64_PATH"] if injected else str(library())
    cupti = next(copies_of_cupti(sys.path), None)
    return _native.kernels_start(path, cupti=cupti)


def misspelled_attribution(environ: Mapping[str, str]) -> str:
    """What is wrong with the wish how kernels find their phase, one line; empty: nothing."""
    wish = environ.get(_ATTRIBUTION, "")
    if not wish or wish in _ATTRIBUTIONS:
        return ""
    return f"{_ATTRIBUTION}={wish!r} is none of {', '.join(_ATTRIBUTIONS)}; it is taken for auto"


def copies_of_cupti(paths: Iterable[str]) -> Iterator[str]:
    """Copies of CUPTI that torch would load, where it has not done so yet: never two in one process."""
    for path in paths:
        if not isinstance(path, str | os.PathLike):
            continue  # Python passes over such entries too
        for folder in ("nvidia/cuda_cupti/lib", "nvidia/cu13/lib"):
            yield from sorted(str(found) for found in Path(path or ".").glob(f"{folder}/libcupti.so.1*"))
