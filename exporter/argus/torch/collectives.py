"""Waiting in torch.distributed as communication, with operation, communicator and payload.

Caught where Python enters C++: at the methods of the types ``ProcessGroup`` and
``Work``, so that it does not matter by which name a program imported a function,
and torch.compile's table of functions is untouched.  Functional collectives
(torch.compile, DTensor) wait in an operator, ``_c10d_functional::wait_tensor``,
which gets a kernel for the CPU.  C++ that calls C++ (DDP's reducer) passes by;
its operations are counted by torch's flight recorder (``sequences``).

Only what waits on the host is timed.  With NCCL ``wait()`` orders streams and
returns: there the time of communication is that of its kernels.
"""

from __future__ import annotations

import functools
import logging
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, distributed

import argus
from argus import _native
from argus.torch.communicators import Communicators
from argus.torch.compiler import is_compiling, leave_alone
from argus.torch.operations import OPERATIONS, PAIRWISE, WITH_PEER, Pending, Reference, payload
from argus.torch.sequences import Watch, watch

_log = logging.getLogger("argus.torch")

FUNCTIONAL_WAIT = "wait_tensor"
"""Phase of waiting for functional collectives: the operator does not know for which."""


class Collectives:
    """Catches the collectives of this process."""

    def __init__(self) -> None:
        self.communicators = Communicators()
        self.off = False
        # By identity; a dictionary of weak keys could not be listed while others are added.
        self._pending: dict[int, Reference] = {}
        self._undo: list[Callable[[], None]] = []

    def catch(self) -> None:
        """Put the catchers in place."""
        for method, op in OPERATIONS.items():
            if method in distributed.ProcessGroup.__dict__:
                self._replace(distributed.ProcessGroup, method, self._enqueuing(method, op))
        self._replace(distributed.Work, "wait", self._waiting())
        self._catch_functional()
        _native.source("collectives", True)

    def release(self) -> None:
        """Take them away."""
        self.off = True
        while self._undo:
            self._undo.pop()()

    def _turn_off(self, error: Exception) -> None:
        """What is caught goes on untouched; the catchers stay, for another thread may be inside."""
        if not self.off:
            self.off = True
            _native.source("collectives", False)
            _log.warning("argus: collectives are not traced any more: %s: %s", type(error).__name__, error)

    def _replace(self, cls: Any, name: str, catcher: Any) -> None:
        original = cls.__dict__[name]  # not by getattr, which takes the binding to `self` off
        setattr(cls, name, catcher)

        def undo() -> None:
            if cls.__dict__.get(name) is catcher:  # else somebody came after us, and calls ours
                setattr(cls, name, original)

        self._undo.append(undo)

    def _enqueuing(self, method: str, op: str) -> Callable[..., Any]:
        original = getattr(distributed.ProcessGroup, method)

        @functools.wraps(original)
        def enqueue(group: Any, *args: Any, **kwargs: Any) -> Any:
            work = original(group, *args, **kwargs)
            if not self.off and work is not None and not is_compiling():
                try:
                    self._enqueued(work, group, op, args, kwargs)
                except Exception as error:
                    self._turn_off(error)
            return work

        return _uncompiled(enqueue)

    def _enqueued(self, work: Any, process_group: Any, op: str, args: Any, kwargs: Any) -> None:
        size = payload((*args[:2], *kwargs.values()))
        group = None if size is None else self.communicators.group(process_group)
        if size is None or group is None:
            return
        options = kwargs.get("opts", args[-1] if args else None)
        at_once = not getattr(options, "asyncOp", True)
        pending = Pending(op, group, size, at_once)
        if op not in PAIRWISE:
            pending.among(group.communicator)
        elif len(args) == WITH_PEER:
            pending.among(self.communicators.pair(group, args[1]))
        reference = Reference(work, self._forget)
        reference.identity, reference.pending = id(work), pending
        self._pending[id(work)] = reference

    def _waiting(self) -> Callable[..., Any]:
        original = distributed.Work.wait

        @functools.wraps(original)
        def wait(work: Any, *args: Any, **kwargs: Any) -> Any:
            pending = None if self.off or is_compiling() else self._find(work)
            if pending is None or pending.done:
                return original(work, *args, **kwargs)
            try:
                block = pending.block()
            except Exception as error:
                self._turn_off(error)
                return original(work, *args, **kwargs)
            with block:
                result = original(work, *args, **kwargs)
            try:
                self._waited(work, pending)
            except Exception as error:
                self._turn_off(error)
            return result

        return _uncompiled(wait)

    def _find(self, work: Any) -> Pending | None:
        reference = self._pending.get(id(work))
        return reference.pending if reference is not None and reference() is work else None

    def _forget(self, reference: weakref.ref[Any]) -> None:
        """A work is gone, waited for or not."""
        assert isinstance(reference, Reference)
        if self._pending.get(reference.identity) is reference:
            del self._pending[reference.identity]

    def _waited(self, work: Any, pending: Pending) -> None:
        if pending.communicator is None:  # now it is known from whom something came
            pending.among(self.communicators.pair(pending.group, work._source_rank()))
        pending.complete()

    def _catch_functional(self) -> None:
        """A kernel for the CPU in the place of the one for all devices, which it calls."""
        if not hasattr(torch.library, "get_kernel"):  # torch before 2.9
            return
        kernel = torch.library.get_kernel("_c10d_functional::wait_tensor", "CPU")
        phase = argus.phase(FUNCTIONAL_WAIT, "communication")

        def wait_tensor(keys: Any, tensor: Tensor) -> Any:
            if self.off:
                return kernel.call_boxed(keys, tensor)
            with phase:
                return kernel.call_boxed(keys, tensor)

        library: Any = torch.library.Library("_c10d_functional", "IMPL")  # type: ignore[no-untyped-call]
        library.impl("wait_tensor", wait_tensor, "CPU", with_keyset=True)
        self._undo.append(library._destroy)

    def settle(self) -> None:
        """Mark what is done by now without having been waited for."""
        for reference in list(self._pending.values()):
            work = reference()
            if work is not None and not reference.pending.done and work.is_completed():
                reference.pending.complete()


def _uncompiled(catcher: Any) -> Callable[..., Any]:
    leave_alone(catcher.__code__)
    return catcher  # type: ignore[no-any-return]


_active: Collectives | None = None
_watching: Watch | None = None
_users = 0


def trace_collectives() -> Callable[[], None]:
    """Catch collectives from now on; returns what ends it.

    Called by ``attach``; call it yourself where the loop is not attached.  Does
    nothing where torch has no torch.distributed.
    """
    global _active, _users, _watching
    if not distributed.is_available():
        return lambda: None
    if _active is None:
        _active = Collectives()
        _active.catch()
        _watching = watch(_active)
    _users += 1
    ended = False

    def end() -> None:
        global _active, _users
        nonlocal ended
        if ended:
            return
        ended = True
        _users -= 1
        if not _users and _active is not None:
            _active.release()
            _active = None
            if _watching is not None:
                _watching.end()

    return end


def waits_are_told() -> bool:
    """Whether all waiting for collectives of the CPU is told from computing, but for DDP's own."""
    return _active is not None and not _active.off and hasattr(torch.library, "get_kernel")
