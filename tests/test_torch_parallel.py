"""Sharded modules and pipelines with one line: what is left as it was, in a job of one rank."""

from __future__ import annotations

import copy
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from torch_support import flow, recording, torch, tracing  # skips where torch is missing

import argus  # isort: skip
import argus.torch  # isort: skip
import torch.distributed as dist  # isort: skip
from torch._dynamo.testing import CompileCounterWithBackend  # isort: skip
from torch.distributed.fsdp import fully_shard  # isort: skip
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe  # isort: skip

from argus.torch import collectives, pipelines  # isort: skip


@pytest.fixture(autouse=True, scope="module")
def one_rank() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture
def journal(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    with recording(monkeypatch) as entries:
        yield entries


def sharded() -> Any:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
    for layer in model:
        fully_shard(layer)
    return fully_shard(model)


def pipeline() -> tuple[Any, Any]:
    layer = torch.nn.Linear(4, 1)
    stage = PipelineStage(layer, 0, 1, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, n_microbatches=2, loss_fn=lambda y, target: (y - target).square().mean())
    return schedule, torch.optim.SGD(layer.parameters(), lr=0.1)


def test_a_sharded_module_is_traced_once_and_released(journal: list[str]) -> None:
    model = sharded()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    first, second = argus.torch.attach(model, optimizer), argus.torch.attach(model, optimizer)
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    assert flow(journal) == "+i +f -f +b -b +o -o"
    second.detach()
    first.detach()
    assert collectives._active is None
    journal.clear()
    model(torch.ones(2, 4)).sum().backward()
    assert journal == []


def test_forward_and_backward_of_a_sharded_module_are_compute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with tracing(tmp_path, monkeypatch):
        handle = argus.torch.attach(sharded())
        assert handle.active
        assert "mixed" not in caplog.text
        handle.detach()
        argus.torch.attach(sharded(), collectives=False).detach()
    assert "forward, backward get the kind mixed" in caplog.text


def test_a_sharded_module_compiles_and_saves_as_without(journal: list[str]) -> None:
    torch._dynamo.reset()
    graphs = []
    for attach in (False, True):
        torch.manual_seed(0)
        model = sharded()
        counter = CompileCounterWithBackend("eager")
        compiled = torch.compile(model, backend=counter)
        handle = argus.torch.attach(compiled) if attach else None
        compiled(torch.ones(2, 4)).sum().backward()
        graphs.append(counter.frame_count)
        saved = io.BytesIO()
        torch.save(model.state_dict(), saved)
        graphs.append(len(saved.getvalue()))
        if handle is not None:
            assert handle.active
            handle.detach()
        torch._dynamo.reset()
    assert graphs[:2] == graphs[2:]


def test_each_microbatch_of_a_pipeline_has_its_forward_and_backward(journal: list[str]) -> None:
    schedule, optimizer = pipeline()
    handle, again = argus.torch.attach(schedule, optimizer), argus.torch.attach(schedule, optimizer)
    for _ in range(2):
        schedule.step(torch.ones(4, 4), target=torch.ones(4, 1))
        optimizer.step()
    once = "+f -f +f -f +b -b +b -b +o -o"
    assert flow(journal) == f"+i {once} -i +i {once}"
    again.detach()
    handle.detach()
    assert not pipelines.is_traced(schedule)
    assert "step" not in vars(schedule)
    journal.clear()
    schedule.step(torch.ones(4, 4), target=torch.ones(4, 1))
    assert journal == []


def test_a_pipelines_evaluation_is_no_training(journal: list[str]) -> None:
    schedule, optimizer = pipeline()
    handle = argus.torch.attach(schedule, optimizer)
    schedule.eval(torch.ones(4, 4), target=torch.ones(4, 1))
    assert journal == []
    handle.detach()


def test_the_module_of_a_stage_can_be_copied(journal: list[str]) -> None:
    schedule, optimizer = pipeline()
    handle = argus.torch.attach(schedule, optimizer)
    module = schedule._stage.submod
    copied = copy.deepcopy(module)
    assert torch.equal(copied.weight, module.weight)
    handle.detach()
