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
from argus.exporter.registry import Registry  # noqa: E402
from argus.exporter.sources import MemorySource  # noqa: E402
from argus.segment.reader import read  # noqa: E402
from argus.torch import attachment  # noqa: E402
from exporter_support import series  # noqa: E402


class _Block:
    def __init__(self, journal: list[str], name: str) -> None:
        self.journal, self.name = journal, name

    def __enter__(self) -> None:
        self.journal.append(f"+{self.name}")

    def __exit__(self, *error: object) -> None:
        self.journal.append(f"-{self.name}")


@pytest.fixture
def journal(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What the integration tells the tracer: "+name" begins, "-name" ends."""
    entries: list[str] = []
    monkeypatch.setattr(argus, "phase", lambda name, kind=None: _Block(entries, name), raising=False)
    monkeypatch.setattr(argus, "iteration", lambda: _Block(entries, "iteration"), raising=False)
    monkeypatch.setattr(argus, "pause", lambda kind: _Block(entries, f"pause {kind}"), raising=False)
    monkeypatch.setattr(argus, "init", lambda: None, raising=False)
    monkeypatch.setattr(argus, "status", lambda: {"enabled": True}, raising=False)
    yield entries
    attachment._recorder = None


def _flow(entries: list[str]) -> str:
    """The journal in short: d( d) f( f) ... with | where an iteration ends and begins."""
    short = {
        "data_loading": "d", "forward": "f", "backward": "b", "optimizer": "o", "iteration": "i",
        "grad_sync": "s", "buffer_sync": "u", "pause evaluation": "p",
    }  # fmt: skip
    return " ".join((entry[0] + short[entry[1:]]) for entry in entries)


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


def _loader(**options: Any) -> Any:
    return torch.utils.data.DataLoader(Dataset(), batch_size=2, **options)


def _job() -> tuple[Any, Any, Any]:
    model = Net()
    return model, torch.optim.SGD(model.parameters(), lr=0.1), _loader()


STEP = "+f -f +b -b +o -o"
FETCH = "+d -d"


class Slow(Dataset):
    """Each batch takes 20 ms."""

    def __getitem__(self, index: int) -> Any:
        time.sleep(0.01)
        return super().__getitem__(index)


@pytest.fixture
def segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where this test's real tracer puts its segment."""
    monkeypatch.setenv("ARGUS_DIR", str(tmp_path))
    yield tmp_path
    attachment._recorder = None
    argus.finish()


def test_the_segment_holds_the_seconds_of_each_phase(segments: Path) -> None:
    model, optimizer, _ = _job()
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


def test_disabled_means_untouched(segments: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARGUS_DISABLE", "1")
    model, optimizer, loader = _job()
    state = dict(vars(model))
    handle = argus.torch.attach(model, optimizer, loader)
    assert not handle.active
    assert handle.reason == "ARGUS_DISABLE is set"
    assert handle.dataloader is loader
    assert vars(model) == state
    assert type(loader) is torch.utils.data.DataLoader
    assert list(segments.iterdir()) == []


def test_a_plain_loop(journal: list[str]) -> None:
    model, optimizer, loader = _job()
    handle = argus.torch.attach(model, optimizer, loader)
    assert handle.active
    assert handle.dataloader is loader
    for _ in range(2):
        for batch in loader:
            optimizer.zero_grad()
            model(batch).sum().backward()
            optimizer.step()
    assert _flow(journal) == (
        f"{FETCH} +i {STEP} -i {FETCH} +i {STEP} -i {FETCH} +p"
        f" -p +i {FETCH} {STEP} -i {FETCH} +i {STEP} -i {FETCH} +p"
    )


def test_gradient_accumulation_is_one_iteration(journal: list[str]) -> None:
    model, optimizer, loader = _job()
    argus.torch.attach(model, optimizer, loader)
    for batch in loader:
        model(batch).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    next(iter(loader))
    micro = f"{FETCH} +f -f +b -b"
    assert _flow(journal).replace("+i ", "", 1) == f"{micro} {micro} {FETCH} +o -o -i {FETCH} +i"


def test_without_a_data_loader_the_next_forward_ends_the_iteration(journal: list[str]) -> None:
    model, optimizer, _ = _job()
    argus.torch.attach(model, optimizer)
    for _ in range(2):
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    assert _flow(journal) == f"+i {STEP} -i +i {STEP}"


@pytest.mark.parametrize("clear_first", [False, True])
def test_a_step_that_the_scaler_skips_ends_its_iteration(journal: list[str], clear_first: bool) -> None:
    model, optimizer, loader = _job()
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
    flow = _flow(journal)
    assert flow.count("+o") == 1, "the first step was skipped"
    if clear_first:  # known only when the next batch is here
        assert flow == f"{FETCH} +i +f -f +b -b {FETCH} -i +i {STEP} -i {FETCH} +p"
    else:
        assert flow == f"{FETCH} +i +f -f +b -b -i {FETCH} +i {STEP} -i {FETCH} +p"


def test_validation_is_not_training(journal: list[str]) -> None:
    model, optimizer, loader = _job()
    argus.torch.attach(model, optimizer, loader)
    model.eval()
    model(torch.ones(2, 4))
    model.train()
    with torch.no_grad():
        model(torch.ones(2, 4))
    assert journal == []


def test_an_iterator_left_by_break_ends_the_epoch(journal: list[str]) -> None:
    model, optimizer, loader = _job()
    argus.torch.attach(model, optimizer, loader)
    for batch in loader:
        model(batch).sum().backward()
        optimizer.step()
        break
    assert _flow(journal) == f"{FETCH} +i {STEP} -i +p"


def test_recomputation_inside_backward_is_no_forward(journal: list[str]) -> None:
    model = Net()
    argus.torch.attach(model)

    def outer(x: Any) -> Any:
        return torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False)

    outer(torch.ones(2, 4)).sum().backward()
    assert _flow(journal).count("+f") == 1


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
    assert _flow(journal) == "+i +f -f"
    with pytest.raises(RuntimeError, match="broken backward"):
        model(torch.ones(2, 4)).sum().backward()
    model(torch.ones(2, 4))
    assert _flow(journal) == "+i +f -f +f -f +b -b +f -f"
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
    assert _flow(journal) == "+i +f -f +b -b"


def test_several_gradients_begin_one_backward(journal: list[str]) -> None:
    class Two(Net):
        def forward(self, x: Any) -> Any:
            return self.first(x), self.second(x)

    model = Two()
    argus.torch.attach(model)
    a, b = model(torch.ones(2, 4))
    (a.sum() + b.sum()).backward()
    assert _flow(journal) == "+i +f -f +b -b"


def test_model_and_optimizer_pickle_and_copy_as_if_untouched(journal: list[str]) -> None:
    model, optimizer, loader = _job()
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
    model, optimizer, loader = _job()
    state = {name: vars(model)[name] for name in vars(model)}
    first = argus.torch.attach(model, optimizer, loader)
    second = argus.torch.attach(model, optimizer, loader)
    for batch in loader:
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
    assert _flow(journal).count("+f") == 2
    second.detach()
    model(torch.ones(2, 4))
    assert _flow(journal).count("+f") == 3
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
    model, optimizer, loader = _job()
    argus.torch.attach(model, optimizer, loader)
    model(next(iter(loader))).sum().backward()
    optimizer.step()
    references = [weakref.ref(model), weakref.ref(optimizer), weakref.ref(loader)]
    del model, optimizer, loader
    assert [reference() for reference in references] == [None, None, None]


@pytest.mark.parametrize("options", [{"num_workers": 1}, {"num_workers": 1, "persistent_workers": True}])
def test_loaders_with_workers(journal: list[str], options: dict[str, Any]) -> None:
    loader = _loader(**options, multiprocessing_context="forkserver")
    argus.torch.attach(dataloader=loader)
    for _ in range(2):
        assert [batch.shape for batch in loader] == [(2, 4), (2, 4)]
    assert _flow(journal).count("+d") == 6


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
    assert _flow(journal).count("+d") == 3 * 3 + 2


def test_fetches_of_other_threads_are_not_the_loops(journal: list[str]) -> None:
    loader = _loader()
    argus.torch.attach(dataloader=loader)
    thread = threading.Thread(target=lambda: list(loader))
    thread.start()
    thread.join()
    assert journal == []


def test_a_failure_inside_turns_tracing_off_once_and_training_goes_on(
    journal: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model, optimizer, loader = _job()

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

    model, optimizer, loader = _job()
    handle = argus.torch.attach(model, optimizer, loader)
    assert told() == {"argus_tracer_enabled": 1}  # it counts nothing of its own

    def broken() -> Any:
        raise OSError("no iteration today")

    monkeypatch.setattr(argus, "iteration", broken)
    model(next(iter(loader))).sum().backward()
    assert not handle.active
    assert told() == {"argus_tracer_enabled": 0}
    monkeypatch.undo()
    again = argus.torch.attach(*_job())
    assert told() == {"argus_tracer_enabled": 1}
    again.detach()
    assert told() == {"argus_tracer_enabled": 0}

    def unable(*_: Any) -> Any:
        raise RuntimeError("no kinds today")

    argus.torch.attach(*_job())
    monkeypatch.setattr(attachment, "mixed_kinds", unable)
    attachment._recorder = None
    assert not argus.torch.attach(*_job()).active
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
    assert _flow(journal) == "+i +f -f -i"


def test_an_attached_part_of_an_attached_model_is_a_part_of_its_forward(journal: list[str]) -> None:
    model = Net()
    argus.torch.attach([model, model.first])
    model(torch.ones(2, 4)).sum().backward()
    assert _flow(journal) == "+i +f -f +b -b"


def test_two_models_of_one_loss_have_one_backward(journal: list[str]) -> None:
    models = Net(), Net()
    argus.torch.attach(models)
    (models[0](torch.ones(2, 4)) + models[1](torch.ones(2, 4))).sum().backward()
    assert _flow(journal) == "+i +f -f +f -f +b -b"


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
    model, optimizer, _ = _job()
    argus.torch.attach(Net(), optimizer)
    for _ in range(5):
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    assert caplog.text.count("no training forward pass of the attached model was seen") == 1


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
    assert _flow(journal) == "+o +i +f -f +b -b -o"


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
    assert _flow(journal) == "+i" + 3 * " +f -f +b -b"


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
    assert _flow(journal) == "+o -o +i +f -f +b -b +o -o"


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
    assert _flow(journal).count("-i +i") == 2
