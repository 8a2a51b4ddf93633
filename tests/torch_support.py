"""Small models, loaders and loops, and what the integration makes of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed (pip install argus-gpu[torch])")

import argus  # noqa: E402
import argus.torch  # noqa: E402
from argus.torch import attachment, collectives  # noqa: E402


class _Block:
    def __init__(self, journal: list[str], name: str) -> None:
        self.journal, self.name = journal, name

    def __enter__(self) -> None:
        self.journal.append(f"+{self.name}")

    def __exit__(self, *error: object) -> None:
        self.journal.append(f"-{self.name}")


@contextmanager
def recording(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What the integration tells the tracer: "+name" begins, "-name" ends."""
    entries: list[str] = []
    monkeypatch.setattr(argus, "phase", lambda name, kind=None: _Block(entries, name), raising=False)
    monkeypatch.setattr(argus, "iteration", lambda: _Block(entries, "iteration"), raising=False)
    monkeypatch.setattr(argus, "pause", lambda kind: _Block(entries, f"pause {kind}"), raising=False)
    monkeypatch.setattr(argus, "init", lambda: None, raising=False)
    monkeypatch.setattr(argus, "status", lambda: {"enabled": True}, raising=False)
    yield entries
    forget()


def forget() -> None:
    """Take off what a test attached and did not detach; the next test begins anew."""
    attachment._recorder = None
    if collectives._active is not None:
        collectives._active.release()
        if collectives._watching is not None:
            collectives._watching.end()
    collectives._active, collectives._users = None, 0


def flow(entries: list[str]) -> str:
    """The journal in short: d( d) f( f) ... with | where an iteration ends and begins."""
    short = {
        "data_loading": "d", "forward": "f", "backward": "b", "optimizer": "o", "iteration": "i",
        "grad_sync": "s", "buffer_sync": "u", "pause evaluation": "p",
    }  # fmt: skip
    return " ".join((entry[0] + short[entry[1:]]) for entry in entries)


class Wait(torch.autograd.Function):
    """Sleeps in its backward."""

    @staticmethod
    def forward(ctx: Any, x: Any, seconds: float) -> Any:
        ctx.seconds = seconds
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        time.sleep(ctx.seconds)
        return gradient, None


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(4, 4)
        self.second = torch.nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return self.second(torch.relu(self.first(x)))


class Dataset(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return torch.ones(4)


def make_loader(**options: Any) -> Any:
    return torch.utils.data.DataLoader(Dataset(), batch_size=2, **options)


def job() -> tuple[Any, Any, Any]:
    model = Net()
    return model, torch.optim.SGD(model.parameters(), lr=0.1), make_loader()


STEP = "+f -f +b -b +o -o"
FETCH = "+d -d"


class Slow(Dataset):
    """Each batch takes 20 ms."""

    def __getitem__(self, index: int) -> Any:
        time.sleep(0.01)
        return super().__getitem__(index)


@contextmanager
def tracing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where this test's real tracer puts its segment."""
    monkeypatch.setenv("ARGUS_DIR", str(tmp_path))
    yield tmp_path
    forget()
    argus.finish()
