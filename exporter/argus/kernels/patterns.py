"""The user's own patterns for kernel names.

The tracer reads the same file inside the training process, where what is wrong
with it only costs one line; a command that is given it stops instead.
"""

from __future__ import annotations

import os

from argus import _native

VARIABLE = "ARGUS_KERNEL_PATTERNS"


class PatternsError(Exception):
    """The file can't be used as it is; the text names file, line and mend."""


def read_patterns(path: str | os.PathLike[str]) -> object:
    """The patterns of a file, for ``_native.kernel_class``; None where it has none but comments.

    Raises:
        PatternsError: The file can't be read, or a line of it is wrong.
    """
    patterns, complaint = _native.read_kernel_patterns(path)
    if complaint:
        raise PatternsError(complaint)
    return patterns
