"""A transformer's training step in bf16 for ``gpu_training``, optionally compiled or one CUDA graph."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

OpenPhase = Callable[[str], AbstractContextManager[Any]]
"""Opens a phase of that name."""
Step = Callable[[OpenPhase], None]

PHASES = ("forward", "backward", "optimizer")
REPLAY = ("replay",)
"""All phases of a step that is one CUDA graph."""


@dataclass(frozen=True)
class Size:
    """Of model and batch."""

    layers: int = 8
    hidden: int = 2048
    heads: int = 16
    sequence: int = 2048
    batch: int = 8
    vocabulary: int = 32000


class _Block(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads = size.heads
        self.norm1, self.norm2 = nn.LayerNorm(size.hidden), nn.LayerNorm(size.hidden)
        self.qkv = nn.Linear(size.hidden, 3 * size.hidden)
        self.out = nn.Linear(size.hidden, size.hidden)
        self.up, self.down = nn.Linear(size.hidden, 4 * size.hidden), nn.Linear(4 * size.hidden, size.hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, sequence, hidden = x.shape
        parts = self.qkv(self.norm1(x)).view(batch, sequence, 3, self.heads, hidden // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, sequence, hidden))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class _Model(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.tokens = nn.Embedding(size.vocabulary, size.hidden)
        self.positions = nn.Embedding(size.sequence, size.hidden)
        self.blocks = nn.ModuleList(_Block(size) for _ in range(size.layers))
        self.norm = nn.LayerNorm(size.hidden)
        self.head = nn.Linear(size.hidden, size.vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.positions.weight
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


def build(size: Size, device: str, *, compiled: bool, graph: bool) -> tuple[Step, tuple[str, ...]]:
    """A step that has run a few times, and the phases that it opens.

    Args:
        size: Of model and batch.
        device: ``cuda`` or ``cpu``.
        compiled: With torch.compile.
        graph: Forward, backward and optimizer as one CUDA graph, replayed.
    """
    torch.manual_seed(1)
    model = _Model(size).to(device=device, dtype=torch.bfloat16)
    on_gpu = device == "cuda"
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=on_gpu, capturable=graph)
    loss_of: Callable[..., torch.Tensor] = torch.compile(model) if compiled else model
    tokens = torch.randint(size.vocabulary, (size.batch, size.sequence + 1), device=device)
    inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    def eager(phase: OpenPhase) -> None:
        with phase("forward"):
            loss = loss_of(inputs, targets)
        with phase("backward"):
            loss.backward()
        with phase("optimizer"):
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    if not graph:
        return eager, PHASES

    def whole() -> None:
        loss_of(inputs, targets).backward()
        optimizer.step()

    # As PyTorch asks: warm up on a side stream, then capture with gradients that do not exist yet.
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            optimizer.zero_grad(set_to_none=True)
            whole()
    torch.cuda.current_stream().wait_stream(side)
    optimizer.zero_grad(set_to_none=True)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        whole()

    def replay(phase: OpenPhase) -> None:
        with phase("replay"):
            captured.replay()

    return replay, REPLAY
