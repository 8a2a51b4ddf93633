"""Forward passes of a module; what its backward passes begin at.

Calls are caught where ``torch.nn.Module`` looks for a compiled call
(``_compiled_call_impl``, torch 2.2 and later), not by module hooks: what
stands there is left out of pickles, copies and state dicts by torch itself,
sees exceptions, and torch.compile neither traces nor breaks on it, whether it
came before or after.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import Module

from argus.torch.backward import Backward, guarded
from argus.torch.compiler import is_compiling, leave_alone, set_compiler
from argus.torch.recorder import Recorder

_SLOT = "_compiled_call_impl"


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
        self._backward = Backward(recorder, find_ddp(model))
        self._inside = False  # called, and the user's own module is not yet
        self._inner: weakref.ref[Module] | None = None
        if is_ddp(model) and isinstance(model.module, Module):
            self._inner = weakref.ref(model.module)
        self._inner_missed = False  # torch.compile calls the user's module without a sign
        self._core = weakref.ref(_core(model))
        self.catch()

    @guarded
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

    @guarded
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

    @guarded
    def _leave(self, output: Any) -> None:
        self._inside = False
        self._recorder.forward_ends()
        if not self._recorder.off and output is not None:
            self._backward.watch(output)

    @guarded
    def _enter_inner(self) -> bool:
        if not self._inside:
            return False
        self._inside = self._inner_missed = False
        self._recorder.forward_computes()
        return True

    @guarded
    def _leave_inner(self, output: Any) -> None:
        self._recorder.forward_computed()


def _core(module: Module) -> Module:
    """The user's own module inside wrappers: its `training` is the one that counts."""
    while True:
        wraps = is_ddp(module) or is_engine(module)
        inside = module.module if wraps else module._modules.get("_orig_mod")
        if not isinstance(inside, Module):
            return module
        module = inside


def is_ddp(module: Module) -> bool:
    """Whether the module is torch's DistributedDataParallel (imported only where the job did)."""
    return any(ancestor.__name__ == "DistributedDataParallel" for ancestor in type(module).__mro__)


def is_engine(module: object) -> bool:
    """Whether this is DeepSpeed's engine, which holds the user's module (imported only where the job did)."""
    return any(ancestor.__name__ == "DeepSpeedEngine" for ancestor in type(module).__mro__)


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


_CATCHER = _catcher(lambda: None, None, bool, bool).__code__  # type: ignore[arg-type]
leave_alone(_CATCHER)
