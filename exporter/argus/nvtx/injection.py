"""The library for ``NVTX_INJECTION64_PATH``, and what can be wrong with the setting."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from argus import _native

VARIABLE = "NVTX_INJECTION64_PATH"
PATTERNS = "ARGUS_NVTX_PATTERNS"


def library() -> Path:
    """The library that NVTX is to load: the extension itself, so that both are one."""
    return Path(str(_native.__file__))


def trouble(environ: Mapping[str, str] | None = None) -> str:
    """Why NVTX ranges don't become phases as the user wished, or an empty text.

    The setting may name another tool (nsys): then nobody wished anything.
    """
    path = Path((os.environ if environ is None else environ).get(VARIABLE, ""))
    # A name without a folder is looked for by the loader.
    if os.sep in str(path) and not os.path.exists(path):
        return (
            f"NVTX ranges are not traced: {VARIABLE} names {path}, which is not there; set it to {library()}"
        )
    if path.name == "libargus_kernels.so":
        return f"NVTX ranges are not traced: {VARIABLE} names the library for kernels; set it to {library()}"
    if path.parent.name != "argus" or not path.name.startswith("_native."):
        return ""
    if not path.samefile(library()):
        return (
            f"NVTX ranges are not traced: {VARIABLE} names {path}, but this program imported another copy of "
            f"argus; set it to {library()}"
        )
    status = _native.nvtx_status()
    return str(status["message"]) if status is not None else ""
