"""Steps of an optimizer, and the clearing of gradients."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

from torch.optim import Optimizer

from argus.torch.compiler import is_compiling
from argus.torch.recorder import Recorder

_MARK = "_argus_traced"


def trace(optimizer: Optimizer, recorder: Recorder, after_step: Callable[[], None]) -> Callable[[], None]:
    """Have steps and clearings recorded; returns what undoes it.

    Neither is part of the optimizer's pickle, copy or state dict: torch leaves
    hooks and instance attributes out of them.
    """

    def before(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if not is_compiling():
            recorder.optimizer_begins()

    def after(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if not is_compiling():
            recorder.optimizer_ends()
            after_step()

    handles = [optimizer.register_step_pre_hook(before), optimizer.register_step_post_hook(after)]
    own, kind, reference = optimizer.__dict__.get("zero_grad"), type(optimizer), weakref.ref(optimizer)

    @functools.wraps(kind.zero_grad)
    def zero_grad(*args: Any, **kwargs: Any) -> Any:
        if own is not None:
            result = own(*args, **kwargs)
        else:
            target: Any = reference()
            result = kind.zero_grad(target, *args, **kwargs)
        if not is_compiling():
            recorder.gradients_cleared()
        return result

    optimizer.__dict__["zero_grad"] = zero_grad
    optimizer.__dict__[_MARK] = True

    def undo() -> None:
        for handle in handles:
            handle.remove()
        traced = reference()
        if traced is not None and traced.__dict__.pop(_MARK, False):
            del traced.__dict__["zero_grad"]
            if own is not None:
                traced.__dict__["zero_grad"] = own

    return undo


def innermost(optimizer: Optimizer) -> Optimizer:
    """The optimizer that steps, inside wrappers that are optimizers by name only, as Accelerate's."""
    while not hasattr(optimizer, "_optimizer_step_pre_hooks") and hasattr(optimizer, "optimizer"):
        optimizer = optimizer.optimizer
    return optimizer


def is_traced(optimizer: Optimizer) -> bool:
    """Whether `trace` has been here."""
    return _MARK in optimizer.__dict__
