"""One line for Megatron-Core and Megatron-LM: ``argus.megatron.attach()`` before training.

Iterations are calls of Megatron's schedules (``forward_backward_func``), their
forward and backward steps are the phases of the same names, whatever the
pipeline; ``finish_grad_sync`` of its DDP and ``step`` of its optimizers are
``grad_sync`` and ``optimizer``.  Who a rank is comes from its parallel state
(``argus.tracer.megatron``).  See ``docs/megatron.md``.
"""

from __future__ import annotations

import functools
import itertools
import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any

import torch

import argus
from argus.torch import Handle
from argus.torch.recorder import Recorder

_log = logging.getLogger("argus.torch")

_SCHEDULES = "megatron.core.pipeline_parallel.schedules"
_STEPS = (
    "forward_backward_no_pipelining",
    "forward_backward_pipelining_with_interleaving",
    "forward_backward_pipelining_without_interleaving",
)
_OPTIMIZERS = ("ChainedOptimizer", "FP32Optimizer", "MixedPrecisionOptimizer")
_TIMERS = {
    "batch-generator": lambda: argus.phase("data_loading", "host"),
    "save-checkpoint": lambda: argus.pause("checkpoint"),
    "save-checkpoint-non-persistent": lambda: argus.pause("checkpoint"),
    "eval-time": lambda: argus.pause("evaluation"),
}
"""Megatron's own timers that say more than its functions do; the first one at log level 2 only."""

_tasks = itertools.count(-2, -1)
_attached: Handle | None = None


def attach(timers: Mapping[str, str] | None = None, *, collectives: bool = True) -> Handle:
    """Trace Megatron's training from now on; a second call does nothing.

    Args:
        timers: Kinds by name of further timers (``config.timers``) to be phases.  A
            timer that Megatron was told not to run (``--timing-log-level``) is none here.
        collectives: False to leave torch.distributed's collectives alone.

    Raises:
        ImportError: Megatron-Core is not installed.
        ValueError: A kind is not one of compute, host, communication, mixed.
    """
    global _attached
    for name, kind in (timers or {}).items():
        if kind not in ("compute", "host", "communication", "mixed"):
            raise ValueError(f"timers: {name!r}: {kind!r}; kinds are compute, host, communication, mixed")
    schedules: Any = import_module(_SCHEDULES)
    if _attached is not None and _attached.active:
        return _attached
    handle = Handle(None)
    try:
        if not argus.status()["enabled"]:
            argus.init()
        if not argus.status()["enabled"]:
            return Handle(None, str(argus.status()["reason"]))
        from argus.torch.attachment import share_recorder  # these need the tracer's extension
        from argus.torch.collectives import trace_collectives

        if collectives:
            handle.on_detach(trace_collectives())
        recorder = share_recorder(handle, _kinds(), True)
        _trace_schedules(handle, schedules, recorder)
        _trace_optimizers(handle, recorder)
        _trace_reduction(handle)
        _trace_timers(handle, timers or {})
    except Exception as error:
        handle.undo()
        _log.warning("argus: Megatron is not traced: %s: %s", type(error).__name__, error)
    _attached = handle
    return handle


def _kinds() -> dict[str, str]:
    """On a GPU the host's clock tells when work was launched, and the phases hold waiting.

    With CUPTI they become compute by themselves, with device seconds.
    """
    if not torch.cuda.is_available():
        return {}
    return dict.fromkeys(("forward", "backward", "grad_sync", "optimizer"), "mixed")


def _around(handle: Handle, owner: Any, name: str, around: Callable[..., Any]) -> None:
    """Have a function or method called through ``around(original, *args, **kwargs)``."""
    original = owner.__dict__[name]

    @functools.wraps(original)
    def traced(*args: Any, **kwargs: Any) -> Any:
        return around(original, *args, **kwargs)

    def undo() -> None:
        if owner.__dict__.get(name) is traced:
            setattr(owner, name, original)

    setattr(owner, name, traced)
    handle.on_detach(undo)


def _trace_schedules(handle: Handle, schedules: Any, recorder: Recorder) -> None:
    def step(original: Callable[..., Any], *args: Any, forward_only: bool = False, **kwargs: Any) -> Any:
        if forward_only:
            with argus.pause("evaluation"):
                return original(*args, forward_only=True, **kwargs)
        recorder.forward_begins(None)
        try:
            return original(*args, **kwargs)
        finally:
            recorder.forward_ends()
            recorder.gradients_cleared()  # the step may be skipped: the next iteration comes in any case

    def forward(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if not recorder.in_forward:
            return original(*args, **kwargs)
        recorder.forward_computes()
        try:
            return original(*args, **kwargs)
        finally:
            recorder.forward_computed()

    def backward(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        recorder.backward_begins(next(_tasks), False)
        try:
            return original(*args, **kwargs)
        finally:
            recorder.backward_ends()

    for name in _STEPS:
        _around(handle, schedules, name, step)
    _around(handle, schedules, "forward_step", forward)
    _around(handle, schedules, "backward_step", backward)


def _trace_optimizers(handle: Handle, recorder: Recorder) -> None:
    depth = 0

    def step(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        nonlocal depth
        depth += 1
        if depth == 1:
            recorder.optimizer_begins()
        try:
            return original(*args, **kwargs)
        finally:
            depth -= 1
            if depth == 0:
                recorder.optimizer_ends()

    optimizers = import_module("megatron.core.optimizer.optimizer")
    for name in _OPTIMIZERS:
        cls = getattr(optimizers, name, None)
        if cls is not None and "step" in cls.__dict__:
            _around(handle, cls, "step", step)


def _trace_reduction(handle: Handle) -> None:
    cls = import_module("megatron.core.distributed").DistributedDataParallel
    phase = argus.phase("grad_sync", "mixed" if torch.cuda.is_available() else "communication")

    def finish(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with phase:
            return original(*args, **kwargs)

    _around(handle, cls, "finish_grad_sync", finish)


def _trace_timers(handle: Handle, kinds: Mapping[str, str]) -> None:
    cls = import_module("megatron.core.timers").Timer
    blocks: dict[str, Callable[[], AbstractContextManager[Any]]] = dict(_TIMERS)
    blocks.update((name, functools.partial(argus.phase, name, kind)) for name, kind in kinds.items())
    running: dict[int, AbstractContextManager[Any]] = {}

    def start(original: Callable[..., Any], timer: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(timer, *args, **kwargs)
        block = blocks.get(timer.name)
        if block is not None:
            running[id(timer)] = opened = block()
            opened.__enter__()
        return result

    def stop(original: Callable[..., Any], timer: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(timer, *args, **kwargs)
        opened = running.pop(id(timer), None)
        if opened is not None:
            opened.__exit__(None, None, None)
        return result

    _around(handle, cls, "start", start)
    _around(handle, cls, "stop", stop)
