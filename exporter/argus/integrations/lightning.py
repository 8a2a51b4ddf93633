"""Lightning: ``argus.integrations.lightning.attach(trainer)``, or `ArgusCallback`.

Lightning calls a module's ``training_step``, through DDP or directly, and with
automatic optimization inside ``optimizer.step``.  A step inside another phase
is taken out of it, so that seconds are right either way.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import argus.torch
from argus.integrations import deepspeed
from argus.integrations.hooks import guarded, pause_in
from argus.stalls.patches import Patches
from argus.torch import Handle, loaders
from argus.torch.backward import Backward
from argus.torch.modules import find_ddp
from argus.torch.recorder import Recorder


def _library() -> Any:
    """The one of Lightning's two packages that the program uses."""
    for name in ("lightning.pytorch", "pytorch_lightning"):
        if sys.modules.get(name) is not None:
            return sys.modules[name]
    try:
        return import_module("lightning.pytorch")
    except ModuleNotFoundError:
        return import_module("pytorch_lightning")


_Callback: Any = _library().Callback


class ArgusCallback(_Callback):  # type: ignore[misc]
    """Traces the fitting of the Trainer that it is given to.

    It holds no state that a checkpoint would save; a copy or pickle of it begins anew.

    Attributes:
        handle: Whether training is traced, and why not.
    """

    def __init__(self) -> None:
        self.handle = Handle(None, "training has not begun")
        self._patches = Patches()
        self._backward: Backward | None = None
        self._backwards = 0  # since the last step
        self._stepping = False  # in this batch, whether the loss scaler lets it or not

    def __reduce__(self) -> tuple[type[ArgusCallback], tuple[()]]:
        return type(self), ()

    @guarded
    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        self._patches.undo()  # of a training that an exception ended
        if not argus.status()["enabled"]:
            argus.init()
        pause_in(self._patches, trainer, "save_checkpoint", "checkpoint")
        pause_in(self._patches, trainer.fit_loop.epoch_loop.val_loop, "run", "evaluation")

    @guarded
    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self.handle.detach()
        model = trainer.strategy.model
        if deepspeed.is_engine(model):
            self.handle = deepspeed.attach(model)
        else:
            self.handle = argus.torch.attach(model, trainer.optimizers)
        recorder = self.handle.recorder
        if recorder is None:
            return
        self._backward = Backward(recorder, find_ddp(model))
        if model is pl_module:  # otherwise training_step is the forward of what wraps it
            self._patches.attribute(trainer.strategy, "training_step", _forward(recorder))
        self._trace_fetches(trainer)

    @guarded
    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        self._trace_fetches(trainer)  # loaders may be made anew

    @guarded
    def on_before_backward(self, trainer: Any, pl_module: Any, loss: Any) -> None:
        self._backwards += 1
        if self._backward is not None:
            self._backward.watch(loss)

    @guarded
    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        self._stepping = True

    @guarded
    def on_train_batch_end(self, trainer: Any, pl_module: Any, *batch: Any, **more: Any) -> None:
        recorder = self.handle.recorder
        if recorder is None or not self._stepping:
            return
        if not self._backwards:
            recorder.turn_off("gradients come from loss.backward(), not from self.manual_backward(loss)")
        recorder.gradients_cleared()
        self._stepping, self._backwards = False, 0

    @guarded
    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        if self.handle.recorder is not None:
            self.handle.recorder.data_ends()

    @guarded
    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        self._patches.undo()

    @guarded
    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._patches.undo()

    def _trace_fetches(self, trainer: Any) -> None:
        fetcher, recorder = trainer.fit_loop._data_fetcher, self.handle.recorder
        if recorder is not None and fetcher is not None and not loaders.is_traced(fetcher):
            loaders.trace(fetcher, recorder)


def attach(trainer: Any) -> ArgusCallback:
    """Trace a Trainer's fitting from now on; a second call gives what the first gave.

    Args:
        trainer: A ``lightning.pytorch.Trainer``.
    """
    for callback in trainer.callbacks:
        if isinstance(callback, ArgusCallback):
            return callback
    callback = ArgusCallback()
    trainer.callbacks.insert(0, callback)  # checkpoints come last
    return callback


def _forward(recorder: Recorder) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def training_step(*args: Any, **kwargs: Any) -> Any:
            recorder.forward_begins("forward")
            try:
                return original(*args, **kwargs)
            finally:
                recorder.forward_ends()

        return training_step

    return make
