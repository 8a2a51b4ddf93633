"""A small model and its data, whose phases last long enough to be seen on two shared cores.

Each phase does some real arithmetic and then waits for a while, as a host
waits for its GPU: four ranks that computed all the time would share two cores
unevenly, and be slow for that reason.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn import LayerNorm, Linear, Module, ReLU, Sequential
from torch.utils.data import Dataset

WIDTH = 64
BATCH = 8


@dataclass
class Load:
    """How long each phase waits, in seconds; ``extra`` is the fault's part."""

    normal: dict[str, float] = field(
        default_factory=lambda: {"forward": 0.030, "backward": 0.045, "data_loading": 0.015}
    )
    extra: dict[str, float] = field(default_factory=dict)

    def wait(self, phase: str) -> None:
        """Let the phase's time pass."""
        time.sleep(self.normal[phase] + self.extra.get(phase, 0.0))


class _Device(torch.autograd.Function):
    """Waits in forward and in backward, changes nothing."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, load: Load) -> Tensor:
        ctx.load = load
        load.wait("forward")
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        ctx.load.wait("backward")
        return gradients[0], None


class Model(Module):
    """Two blocks, with the device's time between them."""

    def __init__(self, load: Load) -> None:
        super().__init__()
        self.load = load
        self.first = Sequential(Linear(WIDTH, 4 * WIDTH), ReLU(), Linear(4 * WIDTH, WIDTH), LayerNorm(WIDTH))
        self.second = Sequential(Linear(WIDTH, 4 * WIDTH), ReLU(), Linear(4 * WIDTH, 1))

    def forward(self, x: Tensor) -> Tensor:
        """(batch, `WIDTH`) -> (batch, 1)."""
        hidden = _Device.apply(self.first(x), self.load)  # type: ignore[no-untyped-call]
        output: Tensor = self.second(hidden)
        return output


class Samples(Dataset[tuple[Tensor, Tensor]]):
    """Random vectors and their means, an epoch of ``batches`` batches of `BATCH`."""

    def __init__(self, load: Load, batches: int, seed: int) -> None:
        self._load, self._length, self._seed = load, batches * BATCH, seed

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if index % BATCH == 0:  # once a batch
            self._load.wait("data_loading")
        generator = torch.Generator().manual_seed(self._seed * self._length + index)
        x = torch.randn(WIDTH, generator=generator)
        return x, x.mean().reshape(1)
