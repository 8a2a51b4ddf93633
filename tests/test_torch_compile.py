"""argus.torch and torch.compile: as many graphs as without, and the phases are seen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed (pip install argus-gpu[torch])")

import argus  # noqa: E402
import argus.torch  # noqa: E402
from torch_support import Net, flow, recording  # noqa: E402


@pytest.fixture
def journal(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    with recording(monkeypatch) as entries:
        yield entries


def _compiled_before(model: Any, counter: Any) -> Any:
    argus.torch.attach(model)
    return torch.compile(model, backend=counter, fullgraph=True)


def _compiled_after(model: Any, counter: Any) -> Any:
    compiled = torch.compile(model, backend=counter, fullgraph=True)
    argus.torch.attach(compiled)
    return compiled


def _compiled_in_place_after(model: Any, counter: Any) -> Any:
    model.compile(backend=counter)
    argus.torch.attach(model)
    return model


def _attached_when_compiled_already(model: Any, counter: Any) -> Any:
    compiled = torch.compile(model, backend=counter)
    compiled(torch.ones(2, 4))
    argus.torch.attach(compiled)
    return compiled


def _with_hooks_of_its_own(model: Any, counter: Any) -> Any:
    model.register_forward_hook(lambda *_: None)
    argus.torch.attach(model)
    return torch.compile(model, backend=counter)


def _with_an_attached_part(model: Any, counter: Any) -> Any:
    argus.torch.attach([model, model.first])
    return torch.compile(model, backend=counter)


@pytest.mark.parametrize(
    "compiled",
    [
        _compiled_before, _compiled_after, _compiled_in_place_after, _attached_when_compiled_already,
        _with_hooks_of_its_own, _with_an_attached_part,
    ],
)  # fmt: skip
def test_torch_compile_makes_one_graph_and_phases_are_seen(journal: list[str], compiled: Any) -> None:
    from torch._dynamo.testing import CompileCounter

    torch._dynamo.reset()
    counter = CompileCounter()
    model = compiled(Net(), counter)
    for _ in range(3):
        model(torch.ones(2, 4)).sum().backward()
    assert (counter.frame_count, counter.op_count) == (1, 3), "linear, relu, linear in one graph"
    assert flow(journal) == "+i" + 3 * " +f -f +b -b"


def test_compiling_in_place_after_attach_costs_one_step(journal: list[str]) -> None:
    from torch._dynamo.testing import CompileCounter

    torch._dynamo.reset()
    counter = CompileCounter()
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    argus.torch.attach(model, optimizer)
    model.compile(backend=counter)
    for _ in range(2):
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    assert counter.frame_count == 1
    assert flow(journal) == "+o -o +i +f -f +b -b +o -o"


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_a_compiled_step_is_left_alone(journal: list[str]) -> None:
    torch._dynamo.reset()
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    argus.torch.attach(model, optimizer)
    step = torch.compile(optimizer.step, backend="eager")
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        step()
    assert flow(journal).count("-i +i") == 2
