"""Backward passes: where they begin, where this rank's gradients are computed, where they are reduced.

Backward begins when the gradient reaches a tensor of the module's output.  A
callback queued with the autograd engine at that moment runs when this rank's
gradients are computed, before DDP's own callback, which waits for the
all-reduces; one queued by ours runs after it.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import torch
from torch import Tensor

from argus.torch.compiler import is_compiling
from argus.torch.recorder import Recorder

_P = ParamSpec("_P")


class _Recording(Protocol):
    _recorder: Recorder


_Self = TypeVar("_Self", bound=_Recording)


def guarded(method: Callable[Concatenate[_Self, _P], Any]) -> Callable[Concatenate[_Self, _P], Any]:
    """A method that never raises into the training: its failure turns tracing off; falsy then."""

    @functools.wraps(method)
    def safely(self: _Self, /, *args: _P.args, **kwargs: _P.kwargs) -> Any:
        try:
            return method(self, *args, **kwargs)
        except Exception as error:
            self._recorder.turn_off(f"{type(error).__name__} in {method.__name__}: {error}")
            return False

    return safely


class Backward:
    """The backward passes of one model."""

    def __init__(self, recorder: Recorder, ddps: Iterable[Any]) -> None:
        """
        Args:
            recorder: Gets the events.
            ddps: The DDP modules in the model, which reduce its gradients.
        """
        self._recorder = recorder
        self._ddps = [weakref.ref(ddp) for ddp in ddps]

    @guarded
    def watch(self, output: Any) -> None:
        """Record the backward pass that begins at a tensor of this output."""
        ddps = [ddp for ddp in (reference() for reference in self._ddps) if ddp is not None]
        sync = any(ddp.require_backward_grad_sync for ddp in ddps)

        def on_gradient(gradient: Tensor) -> None:
            if not is_compiling():
                self._gradient_arrives(sync)

        # Said by torch's own flag: copies and pickles of the tensor may lose this hook without a warning.
        on_gradient.__torch_unserializable__ = True  # type: ignore[attr-defined]
        for tensor in _tensors(output):
            if tensor.grad_fn is not None:
                tensor.register_hook(on_gradient)  # type: ignore[no-untyped-call]

    @guarded
    def _gradient_arrives(self, sync: bool) -> None:
        recorder, task = self._recorder, torch._C._current_graph_task_id()
        if not recorder.off and task != recorder.backward_task:
            queue = torch.autograd.Variable._execution_engine.queue_callback
            queue(lambda: self._backward_ends(queue))
        recorder.backward_begins(task, sync)

    @guarded
    def _backward_ends(self, queue: Callable[[Callable[[], None]], None]) -> None:
        self._recorder.backward_ends()
        if self._recorder.sync_follows:
            queue(self._recorder.sync_ends)


def _tensors(value: Any) -> Iterator[Tensor]:
    """The tensors in an output: sequences, mappings and dataclasses are searched."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for item in value:
            yield from _tensors(item)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from _tensors(getattr(value, field.name))
