"""What the jobs of test_integrations_*.py share: documented lines, a slow model, what the segment holds."""

from __future__ import annotations

import json
import re
import statistics
import time
from pathlib import Path
from typing import Any

import torch

from argus._native import monotonic_ns, own_segments
from argus.flight.model import PAUSES
from argus.flight.recording import record_memory, trace

DOCUMENT = Path(__file__).parent.parent / "docs" / "integrations.md"
QUICK, SLOW = 0.005, 0.04
"""Seconds of one forward pass in training, on rank 0 and on rank 1."""
EVALUATION = CHECKPOINT = 0.2
"""Seconds of a forward pass in evaluation, and of a checkpoint."""


def documented(heading: str) -> Any:
    """The code under a heading of the document, to be executed."""
    section = DOCUMENT.read_text("utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    found = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert found is not None
    return compile(found[1], str(DOCUMENT), "exec")


class Net(torch.nn.Module):
    """Slow on rank 1, in evaluation on both."""

    def __init__(self, rank: int = 0, sleeps: bool = True) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(8, 8), torch.nn.Linear(8, 1)
        self.seconds = (SLOW if rank else QUICK) if sleeps else None

    def forward(self, x: Any) -> Any:
        if self.seconds is not None:  # a compiler would break on it
            time.sleep(self.seconds if self.training else EVALUATION)
        return self.second(torch.relu(self.first(x)))


class Rows(torch.utils.data.Dataset[Any]):
    """Rows that take a while to fetch."""

    def __init__(self, count: int, seconds: float = 0.004) -> None:
        self.count, self.seconds = count, seconds

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        time.sleep(self.seconds)
        return {"x": torch.full((8,), float(index))}


def measured() -> dict[str, Any]:
    """What this rank's segment holds: iterations, phases, and seconds of the pauses that have ended."""
    (segment,) = own_segments()
    recording = record_memory(segment, True, monotonic_ns())
    state = recording.state
    pauses: dict[str, float] = {}
    for pause in trace(recording).tracks[PAUSES]:
        if pause.end is not None:
            pauses[pause.name] = pauses.get(pause.name, 0.0) + (pause.end - pause.begin) / 1e9
    phases = [phase for phase in state.phases if phase.seconds.counts.sum()]
    return {
        "iterations": len(state.slots),
        "pauses": pauses,
        "kinds": {phase.name: phase.kind for phase in phases},
        "counts": {phase.name: int(phase.seconds.counts.sum()) for phase in phases},
        "seconds": {phase.name: (state.slots["phase"][:, phase.index] / 1e9).tolist() for phase in phases},
    }


def results(folder: Path, name: str) -> list[dict[str, Any]]:
    """What both ranks of a job wrote."""
    return [json.loads((folder / f"{name}.{rank}.json").read_text()) for rank in (0, 1)]


def check_phases(ranks: list[dict[str, Any]], forwards: int) -> None:
    """The slow rank computes, and the other waits.

    Args:
        ranks: What `measured` gave on rank 0 and on rank 1.
        forwards: Forward passes per iteration.
    """
    victim, culprit = ranks

    def typical(rank: dict[str, Any], phase: str) -> float:
        return statistics.median(rank["seconds"][phase])

    assert forwards * SLOW <= typical(culprit, "forward")
    assert forwards * QUICK <= typical(victim, "forward") < 0.6 * typical(culprit, "forward")
    for phase in ("backward", "optimizer"):
        assert typical(victim, phase) < 0.5 * forwards * SLOW
    waits = [name for name, kind in victim["kinds"].items() if kind == "communication"]
    waited = sum(typical(victim, name) for name in waits)
    assert waited > 0.4 * forwards * (SLOW - QUICK)
    assert waited > sum(typical(culprit, name) for name in waits)
    for rank in ranks:
        kinds = {name: rank["kinds"][name] for name in ("data_loading", "forward", "backward", "optimizer")}
        assert list(kinds.values()) == ["host", "compute", "compute", "compute"]
