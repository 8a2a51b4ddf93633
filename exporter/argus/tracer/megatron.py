"""Coordinates and groups as Megatron-Core's parallel state has them, without importing it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from argus.tracer.parallel import Coordinates

_STATE = "megatron.core.parallel_state"
_GROUPS = {
    "tp": "get_tensor_model_parallel_group",
    "cp": "get_context_parallel_group",
    "dp": "get_data_parallel_group",
    "pp": "get_pipeline_model_parallel_group",
    "ep": "get_expert_model_parallel_group",
    "edp": "get_expert_data_parallel_group",
}


@dataclass(frozen=True)
class Megatron:
    """What an initialised Megatron says of this rank."""

    coordinates: Coordinates
    groups: dict[str, list[int]]


def read() -> Megatron | None:
    """The state of this process; None where Megatron was not imported or not initialised."""
    state = sys.modules.get(_STATE)
    if state is None or not state.model_parallel_is_initialized():
        return None
    coordinates = Coordinates(
        dp=_ask(state, "get_data_parallel_rank"),
        tp=_ask(state, "get_tensor_model_parallel_rank"),
        pp=_ask(state, "get_pipeline_model_parallel_rank"),
        cp=_ask(state, "get_context_parallel_rank"),
        ep=_ask(state, "get_expert_model_parallel_rank"),
    )
    distributed = sys.modules["torch.distributed"]
    groups = {}
    for name, getter in _GROUPS.items():
        group = _ask(state, getter)
        if group is not None:
            groups[name] = sorted(distributed.get_process_group_ranks(group))
    return Megatron(coordinates, groups)


def _ask(state: Any, function: str) -> Any:
    """None where this version has no such function, or no such group."""
    try:
        return getattr(state, function)()
    except (AttributeError, AssertionError):
        return None
