"""Which phases of a loop can hold waiting for other ranks, and are `mixed` for that reason."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import Module

from argus.torch.collectives import waits_are_told
from argus.torch.modules import find_ddp, is_ddp

_log = logging.getLogger("argus.torch")


def mixed_kinds(models: Sequence[Module], optimizers: Sequence[Any]) -> dict[str, str]:
    """Kinds other than the usual ones, by phase; what makes them so is said in one line each."""
    kinds: dict[str, str] = {}

    def mix(phases: Sequence[str], why: str) -> None:
        if any(phase not in kinds for phase in phases):
            _log.warning("argus: %s get the kind mixed and accuse nobody: %s", ", ".join(phases), why)
        kinds.update(dict.fromkeys(phases, "mixed"))

    passes = ("forward", "backward")
    for model in models:
        devices = {parameter.device.type for parameter in model.parameters()}
        if devices - {"cpu"}:
            mix(
                ("forward", "backward", "grad_sync", "optimizer"),
                f"the model is on {', '.join(sorted(devices - {'cpu'}))}, where the host's clock tells when "
                "work was launched, not how long it took",
            )
        reason = _waiting_inside(model)
        if reason:
            mix(passes, reason)
    for optimizer in optimizers:
        if not waits_are_told() and any(
            base.__name__ == "ZeroRedundancyOptimizer" for base in type(optimizer).__mro__
        ):
            mix(("optimizer",), "ZeroRedundancyOptimizer exchanges parameters in its step")
    return kinds


def _waiting_inside(model: Module) -> str:
    """Why forward and backward can hold waiting for other ranks; empty if they can't."""
    ddps = find_ddp(model)
    if any(ddp.will_sync_module_buffers() for ddp in ddps) and not is_ddp(model):
        return (
            "DDP broadcasts buffers inside forward (broadcast_buffers=False or attaching DDP itself mends it)"
        )
    names = {base.__name__ for module in model.modules() for base in type(module).__mro__}
    if "SyncBatchNorm" in names:
        return "SyncBatchNorm waits for other ranks inside them"
    if waits_are_told():
        return ""
    if names & {"FullyShardedDataParallel", "FSDPModule"}:
        return "sharded parameters are gathered inside them"
    if any(type(parameter).__name__ == "DTensor" for parameter in model.parameters()):
        return "distributed tensors communicate inside them"
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return ""
    world = torch.distributed.get_world_size()
    if world == 1:
        return ""
    if not ddps:
        return "the model is not in DDP, so its own code may wait for other ranks (kinds= says otherwise)"
    if any(ddp.process_group.size() < world for ddp in ddps):
        return (
            "DDP spans only a part of the job, so the model may wait for other ranks (kinds= says otherwise)"
        )
    return ""
