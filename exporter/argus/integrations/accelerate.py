"""Accelerate: ``argus.integrations.accelerate.attach(accelerator)``, before ``accelerator.prepare``.

What ``prepare`` gives back is attached.  It prepares the loaders of training
and of evaluation alike: the fetches of training are those that come while the
model is in train mode.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from torch.nn import Module
from torch.optim import Optimizer

import argus.torch
from argus.integrations import deepspeed
from argus.integrations.hooks import guarded, pause_in
from argus.stalls.patches import Patches
from argus.torch import Handle, loaders
from argus.torch.recorder import Recorder

_PAUSES = ("save_state", "load_state", "save_model")

_attached: weakref.WeakKeyDictionary[Any, _Accelerator] = weakref.WeakKeyDictionary()
_patches = Patches()
"""On Accelerator's class: the objects themselves are pickled and copied as ever."""


def attach(accelerator: Any, *, kinds: Mapping[str, str] | None = None) -> Handle:
    """Trace the loop around what this accelerator prepares from now on; a second call does nothing.

    What it has prepared before: ``argus.torch.attach(model, optimizer, dataloader)``.

    Args:
        accelerator: An ``accelerate.Accelerator``.
        kinds: As for ``argus.torch.attach``.
    """
    known = _attached.get(accelerator)
    if known is None:
        if not _attached:
            _catch(type(accelerator))
        known = _attached[accelerator] = _Accelerator(kinds)
        known.handle.on_detach(functools.partial(_forget, weakref.ref(accelerator)))
    return known.handle


class _Accelerator:
    """What one accelerator has prepared.

    Attributes:
        handle: All of it.
    """

    def __init__(self, kinds: Mapping[str, str] | None) -> None:
        self.handle = Handle(None, "no model has been prepared")
        self._kinds = kinds
        self._waiting: list[Any] = []  # prepared before the model, on which the kinds of phases depend
        self._models: list[weakref.ref[Module]] = []

    @guarded
    def prepared(self, result: Any) -> None:
        """Attach what ``prepare`` gives back."""
        self._waiting += result if isinstance(result, tuple) else (result,)
        models = [item for item in self._waiting if isinstance(item, Module)]
        if not models and not self._models:
            return
        self._models += [weakref.ref(model) for model in models]
        steppers = [item for item in self._waiting if isinstance(item, Optimizer)]
        engines = [model for model in models if deepspeed.is_engine(model)]
        plain = [model for model in models if model not in engines]
        for engine in engines:
            self.handle.absorb(deepspeed.attach(engine, kinds=self._kinds))
        if plain or (steppers and not engines):
            self.handle.absorb(argus.torch.attach(plain, steppers, kinds=self._kinds))
        if self.handle.recorder is not None:
            fetches: Any = _WhileTraining(self.handle.recorder, self._models)
            for item in self._waiting:
                if hasattr(item, "dataset") and hasattr(item, "__iter__") and not loaders.is_traced(item):
                    self.handle.on_detach(loaders.trace(item, fetches)[1])
        self._waiting.clear()


class _WhileTraining:
    """A recorder to which only training's fetches are told."""

    def __init__(self, recorder: Recorder, models: list[weakref.ref[Module]]) -> None:
        self._recorder = recorder
        self._models = models

    @property
    def off(self) -> bool:
        return self._recorder.off

    @property
    def on_loop_thread(self) -> bool:
        models = [model for model in (reference() for reference in self._models) if model is not None]
        return self._recorder.on_loop_thread and any(model.training for model in models)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._recorder, name)


def _catch(cls: Any) -> None:
    def preparing(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def prepare(self: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(self, *args, **kwargs)
            known = _attached.get(self)
            if known is not None:
                known.prepared(result)
            return result

        return prepare

    _patches.attribute(cls, "prepare", preparing)
    for name in _PAUSES:
        pause_in(_patches, cls, name, "checkpoint")


def _forget(reference: weakref.ref[Any]) -> None:
    accelerator = reference()
    if accelerator is not None:
        _attached.pop(accelerator, None)
    if not _attached:
        _patches.undo()
