"""argus.torch in one process: which events a loop gives, and what stays untouched.

Each test reads the journal of phases, iterations and pauses in the order in
which they were begun and ended.
"""

from __future__ import annotations

import copy
import io
import pickle
import threading
import time
import warnings
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed (pip install argus-gpu[torch])")

import argus  # noqa: E402
import argus.torch  # noqa: E402
from argus._native import monotonic_ns, own_segments  # noqa: E402
from argus.segment.reader import read  # noqa: E402
from torch_support import FETCH, STEP, Net, Slow, flow, job, make_loader, recording, tracing  # noqa: E402


@pytest.fixture
def journal(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    with recording(monkeypatch) as entries:
        yield entries


@pytest.fixture
def segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tracing(tmp_path, monkeypatch) as folder:
        yield folder


def test_the_segment_holds_the_seconds_of_each_phase(segments: Path) -> None:
    model, optimizer, _ = job()
    loader = torch.utils.data.DataLoader(Slow(), batch_size=2)
    argus.torch.attach(model, optimizer, loader)
    assert argus.status()["enabled"]
    for _ in range(3):
        for batch in loader:
            optimizer.zero_grad()
            model(batch).sum().backward()
            optimizer.step()
        time.sleep(0.2)  # between epochs: evaluation, nobody's slow iteration
    (segment,) = own_segments()
    state = read(segment.snapshot(), monotonic_ns())
    seconds = {phase.name: state.slots["phase"][:, phase.index] / 1e9 for phase in state.phases}
    assert {phase.name: phase.kind for phase in state.phases} == {
        "data_loading": "host", "forward": "compute", "backward": "compute", "optimizer": "compute",
    }  # fmt: skip
    assert len(state.slots) == 6
    assert (state.slots["wall"] / 1e9 < 0.2).all()
    # The first iteration of all begins with its first batch, which is when tracing learns of it.
    assert (seconds["data_loading"][1:] >= 0.02).all()
    assert all((seconds[phase] > 0).all() for phase in ("forward", "backward", "optimizer"))
    assert (sum(seconds.values()) <= state.slots["wall"] / 1e9).all()


def test_a_plain_loop(journal: list[str]) -> None:
    model, optimizer, loader = job()
    handle = argus.torch.attach(model, optimizer, loader)
    assert handle.active
    assert handle.dataloader is loader
    for _ in range(2):
        for batch in loader:
            optimizer.zero_grad()
            model(batch).sum().backward()
            optimizer.step()
    assert flow(journal) == (
        f"{FETCH} +i {STEP} -i {FETCH} +i {STEP} -i {FETCH} +p"
        f" -p +i {FETCH} {STEP} -i {FETCH} +i {STEP} -i {FETCH} +p"
    )


def test_gradient_accumulation_is_one_iteration(journal: list[str]) -> None:
    model, optimizer, loader = job()
    argus.torch.attach(model, optimizer, loader)
    for batch in loader:
        model(batch).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    next(iter(loader))
    micro = f"{FETCH} +f -f +b -b"
    assert flow(journal).replace("+i ", "", 1) == f"{micro} {micro} {FETCH} +o -o -i {FETCH} +i"


def test_without_a_data_loader_the_next_forward_ends_the_iteration(journal: list[str]) -> None:
    model, optimizer, _ = job()
    argus.torch.attach(model, optimizer)
    for _ in range(2):
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    assert flow(journal) == f"+i {STEP} -i +i {STEP}"


@pytest.mark.parametrize("clear_first", [False, True])
def test_a_step_that_the_scaler_skips_ends_its_iteration(journal: list[str], clear_first: bool) -> None:
    model, optimizer, loader = job()
    argus.torch.attach(model, optimizer, loader)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)  # the first scaled loss overflows
    for index, batch in enumerate(loader):
        if clear_first:
            optimizer.zero_grad()
        loss = model(batch).sum() * (1e30 if index == 0 else 1e-30)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if not clear_first:
            optimizer.zero_grad()
    steps = flow(journal)
    assert steps.count("+o") == 1, "the first step was skipped"
    if clear_first:  # known only when the next batch is here
        assert steps == f"{FETCH} +i +f -f +b -b {FETCH} -i +i {STEP} -i {FETCH} +p"
    else:
        assert steps == f"{FETCH} +i +f -f +b -b -i {FETCH} +i {STEP} -i {FETCH} +p"


def test_validation_is_not_training(journal: list[str]) -> None:
    model, optimizer, loader = job()
    argus.torch.attach(model, optimizer, loader)
    model.eval()
    model(torch.ones(2, 4))
    model.train()
    with torch.no_grad():
        model(torch.ones(2, 4))
    assert journal == []


def test_an_iterator_left_by_break_ends_the_epoch(journal: list[str]) -> None:
    model, optimizer, loader = job()
    argus.torch.attach(model, optimizer, loader)
    for batch in loader:
        model(batch).sum().backward()
        optimizer.step()
        break
    assert flow(journal) == f"{FETCH} +i {STEP} -i +p"


def test_recomputation_inside_backward_is_no_forward(journal: list[str]) -> None:
    model = Net()
    argus.torch.attach(model)

    def outer(x: Any) -> Any:
        return torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False)

    outer(torch.ones(2, 4)).sum().backward()
    assert flow(journal).count("+f") == 1


def test_exceptions_leave_nothing_open(journal: list[str]) -> None:
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 1

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            raise RuntimeError("broken backward")

    class Broken(Net):
        def forward(self, x: Any) -> Any:
            if x.sum() < 0:
                raise RuntimeError("broken forward")
            return Fails.apply(super().forward(x))

    model = Broken()
    handle = argus.torch.attach(model)
    with pytest.raises(RuntimeError, match="broken forward"):
        model(-torch.ones(2, 4))
    assert flow(journal) == "+i +f -f"
    with pytest.raises(RuntimeError, match="broken backward"):
        model(torch.ones(2, 4)).sum().backward()
    model(torch.ones(2, 4))
    assert flow(journal) == "+i +f -f +f -f +b -b +f -f"
    assert handle.active


def test_outputs_of_every_shape(journal: list[str]) -> None:
    from dataclasses import dataclass

    @dataclass
    class Output:
        loss: Any
        other: Any = None

    class Nested(Net):
        def forward(self, x: Any) -> Any:
            y = super().forward(x)
            return {"a": [Output(loss=y.sum()), 3, x, None], "b": (y.detach(),)}

    model = Nested()
    argus.torch.attach(model)
    output = model(torch.ones(2, 4))
    output["a"][0].loss.backward()
    assert flow(journal) == "+i +f -f +b -b"


def test_several_gradients_begin_one_backward(journal: list[str]) -> None:
    class Two(Net):
        def forward(self, x: Any) -> Any:
            return self.first(x), self.second(x)

    model = Two()
    argus.torch.attach(model)
    a, b = model(torch.ones(2, 4))
    (a.sum() + b.sum()).backward()
    assert flow(journal) == "+i +f -f +b -b"


def test_model_and_optimizer_pickle_and_copy_as_if_untouched(journal: list[str]) -> None:
    model, optimizer, loader = job()
    before = pickle.dumps(model), pickle.dumps(loader), str(model.state_dict()), repr(model)
    argus.torch.attach(model, optimizer, loader)
    assert before == (pickle.dumps(model), pickle.dumps(loader), str(model.state_dict()), repr(model))
    buffer = io.BytesIO()
    torch.save(model, buffer)
    assert b"argus" not in buffer.getvalue()
    copies = copy.deepcopy(model), copy.deepcopy(optimizer), copy.copy(loader), copy.deepcopy(loader)
    copies[0](torch.ones(2, 4)).sum().backward()
    copies[1].step()
    copies[1].zero_grad()
    assert [len(list(loader)) for loader in copies[2:]] == [2, 2]
    assert journal == []
    assert b"argus" not in pickle.dumps(optimizer)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        output = model(torch.ones(2, 4))
        torch.save(output.detach(), io.BytesIO())


def test_a_second_attach_changes_nothing_and_detach_undoes_all(journal: list[str]) -> None:
    model, optimizer, loader = job()
    state = {name: vars(model)[name] for name in vars(model)}
    first = argus.torch.attach(model, optimizer, loader)
    second = argus.torch.attach(model, optimizer, loader)
    for batch in loader:
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
    assert flow(journal).count("+f") == 2
    second.detach()
    model(torch.ones(2, 4))
    assert flow(journal).count("+f") == 3
    first.detach()
    journal.clear()
    for batch in loader:
        model(batch).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert journal == []
    assert vars(model) == state
    assert type(loader) is torch.utils.data.DataLoader
    assert "zero_grad" not in vars(optimizer)


def test_nothing_is_kept_alive(journal: list[str]) -> None:
    model, optimizer, loader = job()
    argus.torch.attach(model, optimizer, loader)
    model(next(iter(loader))).sum().backward()
    optimizer.step()
    references = [weakref.ref(model), weakref.ref(optimizer), weakref.ref(loader)]
    del model, optimizer, loader
    assert [reference() for reference in references] == [None, None, None]


@pytest.mark.parametrize("options", [{"num_workers": 1}, {"num_workers": 1, "persistent_workers": True}])
def test_loaders_with_workers(journal: list[str], options: dict[str, Any]) -> None:
    loader = make_loader(**options, multiprocessing_context="forkserver")
    argus.torch.attach(dataloader=loader)
    for _ in range(2):
        assert [batch.shape for batch in loader] == [(2, 4), (2, 4)]
    assert flow(journal).count("+d") == 6


def test_iterables_of_other_kinds(journal: list[str], caplog: pytest.LogCaptureFixture) -> None:
    class Custom:
        def __iter__(self) -> Any:
            yield from (1, 2)

    class Endless:
        count = 0

        def __iter__(self) -> Any:
            return self

        def __next__(self) -> int:
            self.count += 1
            return self.count

    custom, endless, batches = Custom(), Endless(), [1, 2]
    handle = argus.torch.attach(dataloader=[custom, endless, batches, (n for n in (1, 2))])
    assert caplog.text.count("can't be traced in place") == 2
    assert handle.dataloader[0] is custom
    assert handle.dataloader[1] is endless
    assert list(custom) == list(handle.dataloader[2]) == list(handle.dataloader[3]) == [1, 2]
    assert [next(endless), next(iter(endless))] == [1, 2]
    assert len(handle.dataloader[2]) == 2
    assert flow(journal).count("+d") == 3 * 3 + 2


def test_fetches_of_other_threads_are_not_the_loops(journal: list[str]) -> None:
    loader = make_loader()
    argus.torch.attach(dataloader=loader)
    thread = threading.Thread(target=lambda: list(loader))
    thread.start()
    thread.join()
    assert journal == []


def test_an_attached_part_of_an_attached_model_is_a_part_of_its_forward(journal: list[str]) -> None:
    model = Net()
    argus.torch.attach([model, model.first])
    model(torch.ones(2, 4)).sum().backward()
    assert flow(journal) == "+i +f -f +b -b"


def test_two_models_of_one_loss_have_one_backward(journal: list[str]) -> None:
    models = Net(), Net()
    argus.torch.attach(models)
    (models[0](torch.ones(2, 4)) + models[1](torch.ones(2, 4))).sum().backward()
    assert flow(journal) == "+i +f -f +f -f +b -b"


def test_an_optimizer_closure_runs_inside_its_phase(journal: list[str]) -> None:
    model = Net()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=1)
    argus.torch.attach(model, optimizer)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = model(torch.ones(2, 4)).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    assert flow(journal) == "+o +i +f -f +b -b -o"
