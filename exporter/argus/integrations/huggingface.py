"""Hugging Face Trainer: ``argus.integrations.huggingface.attach(trainer)``, or `ArgusCallback`.

Trainer's events tell of a step's end, not of its parts: iterations and phases
come from the model, the optimizer and the data loader that Trainer has
prepared when training begins.  Evaluation and checkpoints have no event at
their beginning, so the methods are caught while it trains.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import argus.torch
from argus.integrations import deepspeed
from argus.integrations.hooks import guarded, pause_in
from argus.stalls.patches import Patches
from argus.torch import Handle, loaders

_TrainerCallback: Any = import_module("transformers").TrainerCallback

_PAUSES = {"evaluate": "evaluation", "predict": "evaluation", "_save_checkpoint": "checkpoint"}


class ArgusCallback(_TrainerCallback):  # type: ignore[misc]
    """Traces the training of the Trainer that it is given to; one is enough, a second does nothing.

    It holds no state that Trainer would save; a copy or pickle of it begins anew.

    Attributes:
        handle: Whether training is traced, and why not.
    """

    def __init__(self) -> None:
        self.handle = Handle(None, "training has not begun")
        self._patches = Patches()

    def __reduce__(self) -> tuple[type[ArgusCallback], tuple[()]]:
        return type(self), ()

    @guarded
    def on_train_begin(self, args: Any, state: Any, control: Any, /, **given: Any) -> None:
        self._patches.undo()  # of a training that an exception ended
        self.handle.detach()
        trainer = _caller(self)
        model = given.get("model") if trainer is None else trainer.model_wrapped
        dataloader = given.get("train_dataloader")
        if deepspeed.is_engine(model):
            self.handle = deepspeed.attach(model, dataloader)
        else:
            self.handle = argus.torch.attach(model, given.get("optimizer"), dataloader)
        if trainer is None or not self.handle.active:
            return
        for name, kind in _PAUSES.items():
            pause_in(self._patches, trainer, name, kind)
        self._patches.attribute(sys.modules["transformers.trainer"], "skip_first_batches", self._skipping)

    @guarded
    def on_step_end(self, args: Any, state: Any, control: Any, /, **given: Any) -> None:
        if self.handle.recorder is not None:  # also where the loss scaler skipped the step
            self.handle.recorder.gradients_cleared()

    @guarded
    def on_epoch_end(self, args: Any, state: Any, control: Any, /, **given: Any) -> None:
        if self.handle.recorder is not None:
            self.handle.recorder.data_ends()

    @guarded
    def on_train_end(self, args: Any, state: Any, control: Any, /, **given: Any) -> None:
        self._patches.undo()

    def _skipping(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Resuming in the middle of an epoch makes another data loader of the one that is traced."""

        def skip_first_batches(dataloader: Any, *args: Any, **kwargs: Any) -> Any:
            rest = original(dataloader, *args, **kwargs)
            recorder = self.handle.recorder
            if recorder is None or not loaders.is_traced(dataloader) or loaders.is_traced(rest):
                return rest
            return loaders.trace(rest, recorder)[0]

        return skip_first_batches


def attach(trainer: Any) -> ArgusCallback:
    """Trace a Trainer's trainings from now on; a second call gives what the first gave.

    Args:
        trainer: A ``transformers.Trainer``, or one of its subclasses.
    """
    for callback in trainer.callback_handler.callbacks:
        if isinstance(callback, ArgusCallback):
            return callback
    callback = ArgusCallback()
    trainer.add_callback(callback)
    return callback


def _caller(callback: ArgusCallback) -> Any:
    """The Trainer whose event this is: it gives callbacks neither itself nor the model that it calls."""
    kind = sys.modules["transformers.trainer"].Trainer
    frame = sys._getframe(1)
    while frame is not None:
        candidate = frame.f_locals.get("self")
        if isinstance(candidate, kind) and callback in candidate.callback_handler.callbacks:
            return candidate
        frame = frame.f_back  # type: ignore[assignment]
    return None
