"""The schedules of torch.distributed.pipelining: forward and backward of each microbatch.

A schedule's ``step`` is what the loop calls in the place of the model.  Between
the microbatches it waits for the neighbouring stages, which is caught as
communication (``collectives``).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import torch

from argus.torch.compiler import is_compiling
from argus.torch.recorder import Recorder

_MARK = "_argus_traced"
_FORWARD = ("forward_one_chunk",)
_BACKWARD = ("backward_one_chunk", "backward_weight_one_chunk")
_tasks = itertools.count(-2, -1)
"""Numbers of backward passes, other than autograd's own, which are at least -1."""


def is_schedule(value: Any) -> bool:
    """Whether this is a schedule of torch.distributed.pipelining (imported only where the job did)."""
    return any(
        base.__name__ == "_PipelineSchedule" and base.__module__.startswith("torch.distributed.pipelining")
        for base in type(value).__mro__
    )


def stages(schedule: Any) -> list[Any]:
    """This rank's stages."""
    several = getattr(schedule, "_stages", None)
    return list(several) if several else [schedule._stage]


def trace(schedule: Any, recorder: Recorder) -> Callable[[], None]:
    """Have the schedule's steps recorded; returns what undoes it."""
    undo = [_wrap(schedule, "step", functools.partial(_step, schedule, recorder))]
    for stage in stages(schedule):
        undo += [_wrap(stage, name, functools.partial(_forward, recorder)) for name in _FORWARD]
        undo += [
            _wrap(stage, name, functools.partial(_backward, recorder))
            for name in _BACKWARD
            if hasattr(stage, name)
        ]
    schedule.__dict__[_MARK] = True

    def undo_all() -> None:
        schedule.__dict__.pop(_MARK, None)
        while undo:
            undo.pop()()

    return undo_all


def is_traced(schedule: Any) -> bool:
    """Whether `trace` has been here."""
    return _MARK in schedule.__dict__


def _wrap(target: Any, name: str, around: Callable[..., Any]) -> Callable[[], None]:
    own, original = target.__dict__.get(name), getattr(target, name)

    @functools.wraps(original)
    def traced(*args: Any, **kwargs: Any) -> Any:
        return around(original, *args, **kwargs)

    target.__dict__[name] = traced

    def undo() -> None:
        if target.__dict__.get(name) is traced:
            del target.__dict__[name]
            if own is not None:
                target.__dict__[name] = own

    return undo


def _trains(schedule: Any, recorder: Recorder) -> bool:
    return (
        not recorder.off
        and bool(getattr(schedule, "_has_backward", True))
        and torch.is_grad_enabled()
        and recorder.on_loop_thread
        and not is_compiling()
    )


def _step(schedule: Any, recorder: Recorder, step: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if not _trains(schedule, recorder):
        return step(*args, **kwargs)
    recorder.forward_begins(None)
    try:
        return step(*args, **kwargs)
    finally:
        recorder.forward_ends()


def _forward(recorder: Recorder, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if not recorder.in_forward:
        return forward(*args, **kwargs)
    recorder.forward_computes()
    try:
        return forward(*args, **kwargs)
    finally:
        recorder.forward_computed()


def _backward(recorder: Recorder, backward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if not recorder.in_forward:
        return backward(*args, **kwargs)
    recorder.backward_begins(next(_tasks), False)
    try:
        return backward(*args, **kwargs)
    finally:
        recorder.backward_ends()
