"""One operation of torch.distributed, from its call to the end of the wait for it."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from typing import Any

from torch import Tensor, sparse_coo, strided

import argus
from argus._native import monotonic_ns
from argus.torch.communicators import Communicator, Group

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

PAIRWISE = ("send", "recv")
WITH_PEER = 3
"""Operations of a communicator of two; torch calls them with tensors, the peer's rank in the group,
and a tag. What is received from anybody lacks the peer."""

_AT_ONCE_NS = 1_000_000
"""Who waits this soon after enqueuing saw the whole operation; later it may have gone on
unseen, so that its time would be too short.  Torch says of most operations whether their
caller waits at once; this is for the others."""


class Pending:
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


class Reference(weakref.ref[Any]):
    """A work that somebody else keeps alive."""

    __slots__ = ("identity", "pending")
    identity: int
    pending: Pending


def payload(values: Iterable[Any]) -> int | None:
    """Bytes of the larger side: what each rank has before a reduction, or after a gathering.

    Args:
        values: A call's arguments: tensors, lists of them, lists of lists, and others.

    Returns:
        None where a tensor is not in the host's memory.
    """
    most = 0
    for value in values:
        size = 0
        for tensor in _tensors(value):
            if not tensor.is_cpu:
                return None
            size += _bytes(tensor)
        most = max(most, size)
    return most


def _bytes(tensor: Tensor) -> int:
    """0 where nobody knows: of sparse layouts but the one that torch.distributed reduces."""
    if tensor.layout is strided:
        return tensor.nbytes
    return tensor._indices().nbytes + tensor._values().nbytes if tensor.layout is sparse_coo else 0


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            if isinstance(item, Tensor):
                yield item
            else:
                yield from _tensors(item)
