"""Stay out of torch.compile's way.

While a compiled module runs, torch looks at every Python frame that begins,
to compile it: ARGUS's own must neither be compiled nor traced.  The names used
here are torch's own but not public; where a version lacks one, torch.compile
may see a frame of ARGUS, and nothing worse happens.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import Any

import torch

_frames: Any = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)


def _nothing(_: Any) -> None:
    return None


is_compiling: Callable[[], bool] = getattr(torch.compiler, "is_compiling", lambda: False)
"""Whether the caller is being traced into a graph."""

set_compiler: Callable[[Any], Any] = getattr(_frames, "set_eval_frame", _nothing)
"""Give this thread's frames to a compiler (None: to nobody); returns the one before. It has no frame."""


def leave_alone(code: CodeType) -> None:
    """Never compile frames of this code; frames that it begins are compiled as ever."""
    if hasattr(_frames, "skip_code"):  # until 2.6
        _frames.skip_code(code)
    elif hasattr(_frames, "set_code_exec_strategy"):
        action = _frames._FrameAction
        _frames.set_code_exec_strategy(code, _frames._FrameExecStrategy(action.SKIP, action.DEFAULT))
