"""argus.torch where something is wrong, off or unclear: training goes on, and it is said once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed (pip install argus-gpu[torch])")

import argus  # noqa: E402
import argus.torch  # noqa: E402
from argus._native import own_segments  # noqa: E402
from argus.exporter.registry import Registry  # noqa: E402
from argus.exporter.sources import MemorySource  # noqa: E402
from argus.torch import attachment  # noqa: E402
from exporter_support import series  # noqa: E402
from torch_support import Net, flow, job, recording, tracing  # noqa: E402


@pytest.fixture
def journal(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    with recording(monkeypatch) as entries:
        yield entries


@pytest.fixture
def segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tracing(tmp_path, monkeypatch) as folder:
        yield folder


def test_a_failure_inside_turns_tracing_off_once_and_training_goes_on(
    journal: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model, optimizer, loader = job()

    def broken() -> Any:
        raise OSError("no iteration today")

    monkeypatch.setattr(argus, "iteration", broken)
    handle = argus.torch.attach(model, optimizer, loader)
    for batch in loader:
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
    assert caplog.text.count("no iteration today") == 1
    assert not handle.active
    assert "no iteration today" in handle.reason


def test_the_exporter_is_told_whether_the_loop_is_traced(
    segments: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told() -> dict[str, float]:
        families = Registry(MemorySource(own_segments)).collect()
        values = series(families)
        return {
            name: value
            for (name, labels), value in values.items()
            if name.startswith("argus_tracer_") and labels[-1] == "torch"
        }

    model, optimizer, loader = job()
    handle = argus.torch.attach(model, optimizer, loader)
    assert told() == {"argus_tracer_enabled": 1}  # it counts nothing of its own

    def broken() -> Any:
        raise OSError("no iteration today")

    monkeypatch.setattr(argus, "iteration", broken)
    model(next(iter(loader))).sum().backward()
    assert not handle.active
    assert told() == {"argus_tracer_enabled": 0}
    monkeypatch.undo()
    again = argus.torch.attach(*job())
    assert told() == {"argus_tracer_enabled": 1}
    again.detach()
    assert told() == {"argus_tracer_enabled": 0}

    def unable(*_: Any) -> Any:
        raise RuntimeError("no kinds today")

    argus.torch.attach(*job())
    monkeypatch.setattr(attachment, "mixed_kinds", unable)
    attachment._recorder = None
    assert not argus.torch.attach(*job()).active
    assert told() == {"argus_tracer_enabled": 0}


def test_a_failure_at_the_models_edge_does_not_reach_the_training(
    journal: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    class Odd(dict[str, Any]):
        def values(self) -> Any:
            raise RuntimeError("ask me later")

    class Model(Net):
        def forward(self, x: Any) -> Any:
            return Odd(y=super().forward(x))

    model = Model()
    handle = argus.torch.attach(model)
    for _ in range(2):
        model(torch.ones(2, 4))["y"].sum().backward()
    assert caplog.text.count("ask me later") == 1
    assert not handle.active
    assert flow(journal) == "+i +f -f -i"


def test_wrong_arguments_are_refused_by_name() -> None:
    with pytest.raises(TypeError, match="model must be a torch Module"):
        argus.torch.attach(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="optimizer must be"):
        argus.torch.attach(Net(), Net())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="phases are data_loading"):
        argus.torch.attach(Net(), kinds={"forwards": "mixed"})


def test_synchronised_batch_norm_makes_mixed(journal: list[str], caplog: pytest.LogCaptureFixture) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.SyncBatchNorm(4))
    argus.torch.attach(model)
    assert "forward, backward get the kind mixed" in caplog.text
    assert "SyncBatchNorm" in caplog.text


def test_off_the_cpu_everything_is_mixed(journal: list[str], caplog: pytest.LogCaptureFixture) -> None:
    argus.torch.attach(Net().to("meta"))
    assert "forward, backward, grad_sync, optimizer get the kind mixed" in caplog.text
    assert "the model is on meta" in caplog.text


def test_a_model_that_is_never_called_is_said_once(
    journal: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    model, optimizer, _ = job()
    argus.torch.attach(Net(), optimizer)
    for _ in range(5):
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    assert caplog.text.count("no training forward pass of the attached model was seen") == 1


def test_disabled_means_untouched(segments: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARGUS_DISABLE", "1")
    model, optimizer, loader = job()
    state = dict(vars(model))
    handle = argus.torch.attach(model, optimizer, loader)
    assert not handle.active
    assert handle.reason == "ARGUS_DISABLE is set"
    assert handle.dataloader is loader
    assert vars(model) == state
    assert type(loader) is torch.utils.data.DataLoader
    assert list(segments.iterdir()) == []
