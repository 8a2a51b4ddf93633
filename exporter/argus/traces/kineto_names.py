"""What the names in a Kineto trace mean: phases, kernels, collectives, element types."""

from __future__ import annotations

import re
from typing import Any

from argus import _native
from argus.traces.table import Collective, Phase

_PHASES = {
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimizer",
    "optimizer_step": "optimizer",
    "zero_grad": "optimizer",
    "data_load": "data_loading",
    "data_loading": "data_loading",
    "dataloader": "data_loading",
}
_PATTERNS = (
    (re.compile(r"(Distributed|FullySharded)DataParallel\.forward$"), "forward"),
    (re.compile(r"Optimizer\.(step|zero_grad)#"), "optimizer"),
    (re.compile(r"enumerate\(DataLoader\)#"), "data_loading"),
    (re.compile(r"autograd::engine::evaluate_function"), "backward"),
)
OTHER = Phase("other", "compute")
"""Device work that was launched in no phase that is known."""
BACKWARD = Phase("backward", "compute")


def phase_of(name: str) -> Phase | None:
    """The phase that an annotation or operator marks: ``## forward ##`` (TorchRec's markers),
    ``DistributedDataParallel.forward``, ``Optimizer.step#Adam.step``, the loader's ``__next__``, autograd's
    engine; None for any other."""
    bare = name.strip("# ").lower()
    found = _PHASES.get(bare)
    if found is None:
        found = next((phase for pattern, phase in _PATTERNS if pattern.match(name)), None)
    return Phase(found, _native.infer_kind(found)) if found else None


_MARK = re.compile(r"(?P<backend>nccl|gloo|mpi|ucc):(?P<op>\w+)")
_OPS = (
    ("allreduce", "all_reduce"),
    ("reducescatter", "reduce_scatter"),
    ("allgather", "all_gather"),
    ("alltoall", "all_to_all"),
    ("sendrecv", "send_recv"),
    ("broadcast", "broadcast"),
    ("barrier", "barrier"),
    ("gather", "gather"),
    ("scatter", "scatter"),
    ("reduce", "reduce"),
    ("send", "send"),
    ("recv", "recv"),
)


def operation(name: str) -> str | None:
    """``all_reduce`` for ``_allreduce_base``, ``AllReduce``, ``allreduce_coalesced`` …; None if unknown."""
    bare = name.lower().replace("_", "")
    return next((op for part, op in _OPS if part in bare), None)


def is_communication_kernel(name: str) -> bool:
    """Whether a kernel is NCCL's or RCCL's, which can spin on a peer."""
    return name.startswith(("ncclKernel", "ncclDev", "rcclKernel", "rcclDev"))


def kernel_operation(name: str) -> str:
    """The operation that a communication kernel's name tells; ``communication`` where it tells none."""
    return operation(name.split("(")[0]) or "communication"


def marked_operation(name: str) -> tuple[str, str] | None:
    """(backend, operation) of an annotation such as ``nccl:all_to_all``; None for any other."""
    found = _MARK.match(name)
    if not found:
        return None
    return found["backend"], operation(found["op"]) or found["op"]


_ELEMENT_BYTES = {
    "float": 4, "double": 8, "half": 2, "bfloat16": 2, "int": 4, "long": 8, "long int": 8, "short": 2,
    "signed char": 1, "unsigned char": 1, "char": 1, "byte": 1, "bool": 1,
    "float32": 4, "float64": 8, "float16": 2, "int8": 1, "uint8": 1, "int16": 2, "int32": 4, "int64": 8,
    "c10::bfloat16": 2, "c10::half": 2, "float8_e4m3fn": 1, "float8_e5m2": 1,
}  # fmt: skip


def payload(args: dict[str, Any]) -> float:
    """Bytes of a collective's input on this rank, by a kernel's or annotation's arguments; NaN if unknown."""
    count = args.get("In msg nelems")
    size = _ELEMENT_BYTES.get(str(args.get("dtype", "")).lower())
    if isinstance(count, int) and size:
        return float(count * size)
    total = 0
    dims, types = args.get("Input Dims"), args.get("Input type")
    if not isinstance(dims, list) or not isinstance(types, list):
        return float("nan")
    for shape, kind in zip(dims, types, strict=False):
        size = _ELEMENT_BYTES.get(str(kind).lower())
        if size and isinstance(shape, list) and shape and all(isinstance(n, int) for n in shape):
            for extent in shape:
                size *= extent
            total += size
    return float(total) if total else float("nan")


_GROUPS = (
    ("expert_data", "edp"),
    ("expert", "ep"),
    ("context", "cp"),
    ("tensor", "tp"),
    ("pipeline", "pp"),
    ("embedding", "pp"),
    ("data", "dp"),
)


def communicator(op: str, args: dict[str, Any]) -> Collective:
    """The communicator of a kernel: from its process group's arguments where the trace has them.

    Otherwise it is called ``world``, with unknown members: it may be any group.
    """
    ranks = [int(number) for number in re.findall(r"\d+", str(args.get("Process Group Ranks", "")))]
    truncated = "..." in str(args.get("Process Group Ranks", ""))
    members = args.get("Group size")
    if not isinstance(members, int) or members < 1:
        members = len(ranks) if ranks and not truncated else -1
    text = str(args.get("Process Group Description", "")).lower()
    group = next((name for part, name in _GROUPS if part in text), "world")
    return Collective(op, group, f"{group}-{min(ranks, default=0)}", members)
