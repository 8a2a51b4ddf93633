"""DeepSpeed: ``argus.integrations.deepspeed.attach(engine)``.

The engine is a module like any other to the loop that calls it.  Its step is
caught where it is really taken, which with gradient accumulation is not in
every call of ``engine.step()``.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import argus.torch
from argus.integrations.hooks import give_up, pause_in
from argus.stalls.patches import Patches
from argus.torch import Handle
from argus.torch.modules import is_engine
from argus.torch.recorder import Recorder

__all__ = ["attach", "is_engine"]

_log = logging.getLogger("argus.torch")
_STEP = "_take_model_step"
_MARK = "_argus_handle"


def attach(
    engine: Any, dataloader: Iterable[Any] | None = None, *, kinds: Mapping[str, str] | None = None
) -> Handle:
    """Trace a loop around an engine's forward, backward and step; a second call does nothing.

    Args:
        engine: What ``deepspeed.initialize`` gave first; not one for pipelines.
        dataloader: The training data's, where ``deepspeed.initialize`` did not make it.
        kinds: As for ``argus.torch.attach``.

    Raises:
        TypeError: It is no engine.
    """
    if not is_engine(engine):
        raise TypeError(f"engine must be DeepSpeed's, not {type(engine).__name__}")
    known = engine.__dict__.get(_MARK)
    if known is not None and known.active:
        return known  # type: ignore[no-any-return]
    if hasattr(engine, "train_batch"):
        reason = "DeepSpeed's pipeline engine is not traced; argus.iteration() around train_batch() is"
        _log.warning("argus: %s", reason)
        return Handle(None, reason)
    loader = engine.training_dataloader if dataloader is None else dataloader
    handle = argus.torch.attach(engine, None, loader, kinds=kinds)
    if handle.recorder is None:
        return handle
    try:
        _catch(engine, handle, handle.recorder)
    except Exception as error:
        give_up(handle, f"{type(error).__name__}: {error}")
    return handle


def _catch(engine: Any, handle: Handle, recorder: Recorder) -> None:
    patches = Patches()
    handle.on_detach(patches.undo)
    engine.__dict__[_MARK] = handle
    patches.add(lambda: engine.__dict__.pop(_MARK, None))

    def stepping(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def step(*args: Any, **kwargs: Any) -> Any:
            recorder.optimizer_begins()
            try:
                return original(*args, **kwargs)
            finally:
                recorder.optimizer_ends()

        return step

    if not patches.attribute(engine, _STEP, stepping):
        raise LookupError(f"this release's engine has no {_STEP}")
    for name in ("save_checkpoint", "load_checkpoint"):
        pause_in(patches, engine, name, "checkpoint")
