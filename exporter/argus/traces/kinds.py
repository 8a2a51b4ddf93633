"""Kinds of phases, and the kind of a phase whose trace does not say."""

from __future__ import annotations

KINDS = ("compute", "host", "communication", "mixed")

_HOST = frozenset(
    ("data_loading", "dataloader", "data_load", "gc", "jit_compile", "checkpoint", "evaluation", "gpu_idle")
)
_COMMUNICATION = frozenset(
    (
        "grad_sync", "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce",
        "gather", "scatter", "barrier", "send", "recv", "send_recv",
    )
)  # fmt: skip


def kind_of(name: str) -> str:
    """The kind that a standard phase name has; other names are compute."""
    if name in _HOST:
        return "host"
    return "communication" if name in _COMMUNICATION else "compute"
