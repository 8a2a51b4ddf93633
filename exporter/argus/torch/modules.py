"""Forward, backward and gradient synchronisation of a module.

Calls are caught where ``torch.nn.Module`` looks for a compiled call
(``_compiled_call_impl``, torch 2.2 and later), not by module hooks: what
stands there is left out of pickles, copies and state dicts by torch itself,
sees exceptions, and torch.compile neither traces nor breaks on it, whether it
came before or after.

Backward begins when the gradient reaches a tensor of the module's output.  A
callback queued with the autograd engine at that moment runs when this rank's
gradients are computed, before DDP's own callback, which waits for the
all-reduces; one queued by ours runs after it.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Concatenate, ParamSpec

import torch
from torch import Tensor
from torch.nn import Module

from argus.torch.compiler import is_compiling, leave_alone, set_compiler
from argus.torch.recorder import Recorder

_SLOT = "_compiled_call_impl"
_P = ParamSpec("_P")


def _guarded(
    method: Callable[Concatenate[TracedModel, _P], Any],
) -> Callable[Concatenate[TracedModel, _P], Any]:
    """A method that never raises into the training: its failure turns tracing off; falsy then."""

    @functools.wraps(method)
    def safely(self: TracedModel, /, *args: _P.args, **kwargs: _P.kwargs) -> Any:
        try:
            return method(self, *args, **kwargs)
        except Exception as error:
            self._recorder.turn_off(f"{type(error).__name__} in {method.__name__}: {error}")
            return False

    return safely


class TracedModel:
    """One model of the loop: the module that the loop calls, and inside DDP the user's own module."""

    def __init__(self, model: Module, recorder: Recorder) -> None:
        """Catch the model's calls.

        Args:
            model: What the loop calls; compiled, DDP or plain.
            recorder: Gets the events.
        """
        self._recorder = recorder
        self._model: weakref.ref[Module] = weakref.ref(model)
        self._ddps = [weakref.ref(ddp) for ddp in find_ddp(model)]
        self._inside = False  # called, and the user's own module is not yet
        self._inner: weakref.ref[Module] | None = None
        if is_ddp(model) and isinstance(model.module, Module):
            self._inner = weakref.ref(model.module)
        self._inner_missed = False  # torch.compile calls the user's module without a sign
        self._core = weakref.ref(_core(model))
        self.catch()

    @_guarded
    def catch(self) -> None:
        """Put the catchers in place, also when ``model.compile()`` has thrown them out since."""
        model = self._model()
        inner = None if self._inner is None else self._inner()
        if model is not None:
            _catch(model, self._enter, self._leave)
        if inner is not None:
            _catch(inner, self._enter_inner, self._leave_inner)

    def detach(self) -> None:
        """Take the catchers away."""
        for reference in (self._model, self._inner):
            module = None if reference is None else reference()
            if module is not None:
                _release(module)

    @_guarded
    def _enter(self) -> bool:
        """Whether this call is a training forward pass, and its beginning is recorded."""
        model, core, recorder = self._model(), self._core(), self._recorder
        if (
            recorder.off
            or recorder.in_forward
            or model is None
            or core is None
            or torch._C._current_graph_task_id() != -1  # recomputation inside backward
            or not recorder.on_loop_thread
        ):
            return False
        if not core.training:
            recorder.evaluation_runs()
            return False
        if not torch.is_grad_enabled():
            return False
        self._inside = True
        broadcast = self._inner is not None and model._check_sync_bufs_pre_fwd()  # type: ignore[operator]
        if self._inner is None or (self._inner_missed and not broadcast):
            recorder.forward_begins("forward")
        else:
            recorder.forward_begins("buffer_sync" if broadcast and not self._inner_missed else None)
        self._inner_missed = self._inner is not None
        return True

    @_guarded
    def _leave(self, output: Any) -> None:
        self._inside = False
        self._recorder.forward_ends()
        if self._recorder.off or output is None:
            return
        ddps = [ddp for ddp in (reference() for reference in self._ddps) if ddp is not None]
        self._watch(output, any(ddp.require_backward_grad_sync for ddp in ddps))

    @_guarded
    def _enter_inner(self) -> bool:
        if not self._inside:
            return False
        self._inside = self._inner_missed = False
        self._recorder.forward_computes()
        return True

    @_guarded
    def _leave_inner(self, output: Any) -> None:
        self._recorder.forward_computed()

    def _watch(self, output: Any, sync: bool) -> None:
        def on_gradient(gradient: Tensor) -> None:
            if not is_compiling():
                self._gradient_arrives(sync)

        # Said by torch's own flag: copies and pickles of the tensor may lose this hook without a warning.
        on_gradient.__torch_unserializable__ = True  # type: ignore[attr-defined]
        for tensor in _tensors(output):
            if tensor.grad_fn is not None:
                tensor.register_hook(on_gradient)  # type: ignore[no-untyped-call]

    @_guarded
    def _gradient_arrives(self, sync: bool) -> None:
        recorder, task = self._recorder, torch._C._current_graph_task_id()
        if not recorder.off and task != recorder.backward_task:
            queue = torch.autograd.Variable._execution_engine.queue_callback
            queue(lambda: self._backward_ends(queue))
        recorder.backward_begins(task, sync)

    @_guarded
    def _backward_ends(self, queue: Callable[[Callable[[], None]], None]) -> None:
        self._recorder.backward_ends()
        if self._recorder.sync_follows:
            queue(self._recorder.sync_ends)


def _core(module: Module) -> Module:
    """The user's own module inside DDP and torch.compile's wrapper: its `training` is the one that counts."""
    while True:
        inside = module.module if is_ddp(module) else module._modules.get("_orig_mod")
        if not isinstance(inside, Module):
            return module
        module = inside


def is_ddp(module: Module) -> bool:
    """Whether the module is torch's DistributedDataParallel (imported only where the job did)."""
    return any(ancestor.__name__ == "DistributedDataParallel" for ancestor in type(module).__mro__)


def find_ddp(model: Module) -> list[Any]:
    """The DDP modules in a model, itself included."""
    return [module for module in model.modules() if is_ddp(module)]


def is_caught(module: Module) -> bool:
    """Whether a catcher is in place."""
    return getattr(module.__dict__.get(_SLOT), "__code__", None) is _CATCHER


def _catch(module: Module, enter: Callable[[], bool], leave: Callable[[Any], None]) -> None:
    if not is_caught(module):
        # Written past __setattr__: torch.compile's wrapper would hand it to the module inside.
        module.__dict__[_SLOT] = _catcher(weakref.ref(module), module.__dict__.get(_SLOT), enter, leave)


def _release(module: Module) -> None:
    if is_caught(module):
        compiled = module.__dict__.pop(_SLOT).compiled_call
        if compiled is not None:
            module.__dict__[_SLOT] = compiled


def _catcher(
    reference: weakref.ref[Module],
    compiled_call: Callable[..., Any] | None,
    enter: Callable[[], bool],
    leave: Callable[[Any], None],
) -> Callable[..., Any]:
    def catch(*args: Any, **kwargs: Any) -> Any:
        call = compiled_call or reference()._call_impl  # type: ignore[union-attr]
        if is_compiling():
            return call(*args, **kwargs)
        compiler = set_compiler(None)  # not for what happens here
        try:
            recorded = enter()
        finally:
            set_compiler(compiler)
        if not recorded:
            return call(*args, **kwargs)
        output = None
        try:
            output = call(*args, **kwargs)
        finally:
            set_compiler(None)
            try:
                leave(output)
            finally:
                set_compiler(compiler)
        return output

    catch.compiled_call = compiled_call  # type: ignore[attr-defined]
    return catch


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


_CATCHER = _catcher(lambda: None, None, bool, bool).__code__  # type: ignore[arg-type]
leave_alone(_CATCHER)
