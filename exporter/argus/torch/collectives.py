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
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, distributed

import argus
from argus._native import monotonic_ns
from argus.torch.communicators import Communicator, Communicators, Group
from argus.torch.compiler import is_compiling, leave_alone
from argus.torch.sequences import Watch, watch

_log = logging.getLogger("argus.torch")

OPERATIONS = {
    "allreduce": "all_reduce",
    "allreduce_coalesced": "all_reduce",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "allgather": "all_gather",
    "allgather_coalesced": "all_gather",
    "_allgather_base": "all_gather",
    "all_gather_single": "all_gather",
    "allgather_into_tensor_coalesced": "all_gather",
    "all_gather_single_coalesced": "all_gather",
    "gather": "gather",
    "scatter": "scatter",
    "reduce_scatter": "reduce_scatter",
    "_reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_single": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "reduce_scatter_single_coalesced": "reduce_scatter",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all",
    "all_to_all_single": "all_to_all",
    "barrier": "barrier",
    "send": "send",
    "recv": "recv",
    "recv_anysource": "recv",
}
"""Methods of ``ProcessGroup`` by torch 2.2 to 2.13, and the operations that they are."""

_PAIRWISE = ("send", "recv")
_WITH_PEER = 3
"""Operations of a communicator of two; torch calls them with tensors, the peer's rank in the group,
and a tag. What is received from anybody lacks the peer."""
FUNCTIONAL_WAIT = "wait_tensor"
"""Phase of waiting for functional collectives: the operator does not know for which."""

_AT_ONCE_NS = 1_000_000
"""Who waits this soon after enqueuing saw the whole operation; later it may have gone on
unseen, so that its time would be too short.  Torch says of most operations whether their
caller waits at once; this is for the others."""


class _Pending:
    """An operation that was enqueued and is not known to be done."""

    __slots__ = ("at_once", "bytes", "communicator", "done", "enqueued_ns", "group", "op", "sequence")

    def __init__(self, op: str, group: Group, bytes: int, at_once: bool) -> None:
        self.op, self.group, self.bytes, self.at_once = op, group, bytes, at_once
        self.communicator: Communicator | None = None
        self.sequence = 0
        self.enqueued_ns = monotonic_ns()
        self.done = False

    def among(self, communicator: Communicator | None) -> None:
        """Count it; None where nobody knows."""
        self.communicator = communicator
        if communicator is not None:
            communicator.op = self.op
            communicator.enqueued = self.sequence = communicator.enqueued + 1

    def block(self) -> Any:
        """What the wait is for the tracer."""
        to = self.communicator
        at_once = self.at_once or monotonic_ns() - self.enqueued_ns <= _AT_ONCE_NS
        if to is None or not at_once:
            return argus.phase(self.op, "communication")
        return argus.collective(
            self.op, to.group, to.group_id, self.bytes, to.members,
            to.nodes if to.nodes > 0 else None, sequence=self.sequence,
        )  # fmt: skip

    def complete(self) -> None:
        self.done = True
        if self.communicator is not None:
            self.communicator.completed = max(self.communicator.completed, self.sequence)


class _Reference(weakref.ref[Any]):
    """A work that somebody else keeps alive."""

    __slots__ = ("identity", "pending")
    identity: int
    pending: _Pending


class Collectives:
    """Catches the collectives of this process."""

    def __init__(self) -> None:
        self.communicators = Communicators()
        self.off = False
        # By identity; a dictionary of weak keys could not be listed while others are added.
        self._pending: dict[int, _Reference] = {}
        self._undo: list[Callable[[], None]] = []

    def catch(self) -> None:
        """Put the catchers in place."""
        for method, op in OPERATIONS.items():
            if method in distributed.ProcessGroup.__dict__:
                self._replace(distributed.ProcessGroup, method, self._enqueuing(method, op))
        self._replace(distributed.Work, "wait", self._waiting())
        self._catch_functional()

    def release(self) -> None:
        """Take them away."""
        self.off = True
        while self._undo:
            self._undo.pop()()

    def _turn_off(self, error: Exception) -> None:
        """What is caught goes on untouched; the catchers stay, for another thread may be inside."""
        if not self.off:
            self.off = True
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
        tensors = list(_tensors((*args[:2], *kwargs.values())))
        if any(tensor.device.type != "cpu" for tensor in tensors):
            return
        group = self.communicators.group(process_group)
        if group is None:
            return
        options = kwargs.get("opts", args[-1] if args else None)
        at_once = not getattr(options, "asyncOp", True)
        pending = _Pending(op, group, _payload((*args[:2], *kwargs.values())), at_once)
        if op not in _PAIRWISE:
            pending.among(group.communicator)
        elif len(args) == _WITH_PEER:
            pending.among(self.communicators.pair(group, args[1]))
        reference = _Reference(work, self._forget)
        reference.identity, reference.pending = id(work), pending
        self._pending[id(work)] = reference

    def _waiting(self) -> Callable[..., Any]:
        original = distributed.Work.wait

        @functools.wraps(original)
        def wait(work: Any, *args: Any, **kwargs: Any) -> Any:
            pending = None if self.off or is_compiling() else self._find(work)
            if pending is None or pending.done:
                return original(work, *args, **kwargs)
            with pending.block():
                result = original(work, *args, **kwargs)
            try:
                self._waited(work, pending)
            except Exception as error:
                self._turn_off(error)
            return result

        return _uncompiled(wait)

    def _find(self, work: Any) -> _Pending | None:
        reference = self._pending.get(id(work))
        return reference.pending if reference is not None and reference() is work else None

    def _forget(self, reference: weakref.ref[Any]) -> None:
        """A work is gone, waited for or not."""
        assert isinstance(reference, _Reference)
        if self._pending.get(reference.identity) is reference:
            del self._pending[reference.identity]

    def _waited(self, work: Any, pending: _Pending) -> None:
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


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


def _payload(values: Iterable[Any]) -> int:
    """Bytes of the larger side: what each rank has before a reduction, or after a gathering."""
    return max((sum(tensor.nbytes for tensor in _tensors(value)) for value in values), default=0)


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
