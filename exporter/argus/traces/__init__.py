"""Recorded traces: ARGUS traces, operation traces and Kineto files, read into one table (docs/traces.md)."""

from argus.traces.accounting import Accountant, RankIteration
from argus.traces.detect import load
from argus.traces.errors import Notes, TraceError
from argus.traces.table import Collective, Phase, Rank, Table

__all__ = [
    "Accountant",
    "Collective",
    "Notes",
    "Phase",
    "Rank",
    "RankIteration",
    "Table",
    "TraceError",
    "load",
]
