"""Stalls in torch: compilations in a real job, checkpoints, rendezvous, evaluation, loaders that stop."""

from __future__ import annotations

import gc
import io
import json
import os
import pickle
import statistics
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed (pip install argus-gpu[torch])")

import argus  # noqa: E402
import argus.torch  # noqa: E402
from simulation import Simulation  # noqa: E402
from stalls_support import occurrences, open_block, seconds, tracer  # noqa: E402
from torch_support import FETCH, STEP, Dataset, flow, forget, job, recording  # noqa: E402

JOB = Path(__file__).with_name("stalls_torch_job.py")
COMPILED = [12, 20, 28, 36, 40, 44, 52]
"""Iterations in which rank 1 of the job compiles; in 40 because its compiler was reset."""


@pytest.fixture
def traced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with tracer(tmp_path, monkeypatch):
        yield
        forget()


# ---- compilations ----


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What the two ranks of stalls_torch_job.py measured."""
    directory = tmp_path_factory.mktemp("stalls")
    environment = {
        **os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "ARGUS_DIR": str(directory),
        "ARGUS_RUN_ID": "test", "ARGUS_STALLS": "1", "WORLD_SIZE": "2",
    }  # fmt: skip
    processes = [
        subprocess.Popen(
            [sys.executable, str(JOB), str(directory / "out")],
            env={**environment, "RANK": rank, "LOCAL_RANK": rank},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in "01"
    ]
    try:
        for process in processes:
            errors = process.communicate(timeout=180)[1]
            assert process.returncode == 0, errors[-4000:]
    finally:
        for process in processes:
            process.kill()
    return [json.loads((directory / f"out.{rank}.json").read_text()) for rank in (0, 1)]


def test_recompilations_are_a_phase_of_the_rank_that_compiles(ranks: list[dict[str, Any]]) -> None:
    victim, culprit = ranks
    compiling = culprit["seconds"]["jit_compile"]
    assert culprit["kinds"]["jit_compile"] == "host"
    assert [number for number, took in enumerate(compiling) if took > 0.001] == COMPILED, "none at the start"
    assert "jit_compile" not in victim["kinds"] or max(victim["seconds"]["jit_compile"]) == 0
    # The other rank waits in its gradients' reduction; the compiling one's forward is what it ever was.
    computing, waiting = culprit["seconds"]["forward"], victim["seconds"]["grad_sync"]
    total = sum(compiling[number] for number in COMPILED)
    assert sum(waiting[number] for number in COMPILED) > 0.5 * total
    assert sum(computing[number] for number in COMPILED) < 0.5 * total
    assert (victim["stalls"], culprit["stalls"]) == (True, True)


def test_the_rank_that_compiles_is_accused_and_nobody_else(
    ranks: list[dict[str, Any]], promtool: str, tmp_path: Path
) -> None:
    """The compilations as measured, in slow motion: the typical one takes as long as ten iterations."""
    recorded = ranks[1]["seconds"]["jit_compile"][3:]  # after the start
    slower = 5.0 / statistics.median(took for took in recorded if took)

    def work(rank: int, iteration: int, _start: float) -> dict[str, float]:
        compiling = slower * recorded[iteration % len(recorded)] if rank == 1 else 0.0
        return {"forward": 0.2, "backward": 0.3, "jit_compile": compiling}

    simulation = Simulation()
    simulation.job(work, 2)
    simulation.run(1500)
    verdict = simulation.judge(promtool, tmp_path)
    assert verdict.ever("rank") - {("ArgusIterationJitter", "warning")} == {
        ("ArgusJitBlocking", "warning", "1")
    }


def test_hooks_make_no_difference_to_graphs_and_survive_a_reset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch._dynamo.testing import CompileCounter

    def step(x: Any) -> Any:
        x = torch.relu(x) + 1
        torch.save(x, io.BytesIO())  # breaks the graph, and is hooked
        return torch.relu(x)

    def frames() -> int:
        torch._dynamo.reset()
        counter = CompileCounter()

        def backend(graph: Any, inputs: Any) -> Any:
            compute = counter(graph, inputs)
            return lambda *args: (gc.collect(0), compute(*args))[1]  # garbage, while a compiled frame runs

        compiled = torch.compile(step, backend=backend)
        for _ in range(2):
            compiled(torch.ones(2))
        return int(counter.frame_count)

    without = frames()
    with tracer(tmp_path, monkeypatch):
        for _ in range(3):  # the job has started
            with argus.iteration():
                pass
        with argus.iteration():
            assert frames() == without
        assert seconds("jit_compile")[-1] > 0
        handler = torch._dynamo.callback.callback_handler
        assert "run_start_callbacks" in vars(handler)
    assert "run_start_callbacks" not in vars(handler)
    assert "run_end_callbacks" not in vars(handler)
    assert frames() == without


def test_a_compilation_is_open_while_it_lasts(traced: None) -> None:
    seen: list[Any] = []

    def backend(graph: Any, _examples: Any) -> Any:
        seen.append(open_block())
        return graph.forward

    for _ in range(5):
        torch._dynamo.reset()
        with argus.iteration(), argus.phase("forward"):
            torch.compile(lambda x: torch.relu(x) * 2, backend=backend)(torch.ones(2))
    assert seen == 3 * [("jit_compile", "pause")] + 2 * [("jit_compile", "host")]
    assert open_block() is None


# ---- checkpoints, rendezvous ----


class Watcher(io.BytesIO):
    """A file that looks at the segment when it is written to."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[Any] = set()

    def write(self, data: Any) -> int:
        self.seen.add(open_block())
        return super().write(data)


def test_saving_is_a_pause_of_the_loop_and_no_part_of_its_iteration(traced: None) -> None:
    model = torch.nn.Linear(2, 2)
    file, elsewhere = Watcher(), Watcher()
    with argus.iteration():
        torch.save(model.state_dict(), file)
        thread = threading.Thread(target=torch.save, args=(model.state_dict(), elsewhere))
        thread.start()
        thread.join()
    assert file.seen == {("checkpoint", "pause")}
    assert elsewhere.seen == {None}
    assert argus.status()["open_phases"] == 0
    assert pickle.loads(pickle.dumps(torch.save)) is torch.save
    file.seek(0)
    assert torch.equal(torch.load(file)["weight"], model.weight)


def test_safetensors_is_a_pause(traced: None, tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")
    early = safetensors.save_file.__wrapped__  # as others have it who imported it before
    seen: list[Any] = []

    class Target:
        def __fspath__(self) -> str:
            seen.append(open_block())
            return str(tmp_path / "x.safetensors")

    for save in (safetensors.save_file, early):
        save({"x": torch.ones(2)}, Target())
    assert set(seen) == {("checkpoint", "pause")}
    assert len(seen) >= 2
    assert open_block() is None
    assert torch.equal(safetensors.load_file(tmp_path / "x.safetensors")["x"], torch.ones(2))


def test_rendezvous_and_distributed_checkpoints(
    traced: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp

    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    seen: dict[str, Any] = {}

    class Writer(dcp.FileSystemWriter):  # type: ignore[misc]
        def prepare_local_plan(self, plan: Any) -> Any:
            seen["planning"] = (threading.get_ident(), open_block())
            return super().prepare_local_plan(plan)

    def meet(store: Any, rank: int, size: int, timeout: Any) -> Any:
        seen["meeting"] = open_block()
        return dist.ProcessGroupGloo(store, rank, size, timeout)

    dist.Backend.register_backend("argus_test", meet, devices=["cpu"])
    dist.init_process_group("argus_test", store=dist.HashStore(), rank=0, world_size=1)
    try:
        assert seen.pop("meeting") == ("rendezvous", "pause")
        dist.new_group([0], backend="argus_test")
        assert seen["meeting"] == ("rendezvous", "pause")
        assert open_block() is None
        state = {"x": torch.arange(4)}
        dcp.save(state, storage_writer=Writer(tmp_path / "1"))
        assert seen["planning"] == (threading.get_ident(), ("checkpoint", "pause"))

        dcp.async_save(state, storage_writer=Writer(tmp_path / "2")).result()
        thread, block = seen["planning"]
        assert thread != threading.get_ident()
        assert block in (None, ("checkpoint", "pause")), (
            "at most until the copy is made, while the loop is held"
        )

        loaded = {"x": torch.zeros(4, dtype=torch.int64)}
        dcp.load(loaded, storage_reader=dcp.FileSystemReader(tmp_path / "2"))
        assert torch.equal(loaded["x"], state["x"])
        assert open_block() is None
    finally:
        dist.destroy_process_group()


# ---- evaluation, data ----


def test_an_evaluation_in_the_middle_of_an_epoch_is_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    with recording(monkeypatch) as journal:
        model, optimizer, loader = job()
        argus.torch.attach(model, optimizer, loader)
        for number, batch in enumerate(loader):
            optimizer.zero_grad()
            model(batch).sum().backward()
            optimizer.step()
            if number == 0:
                model.eval()
                for _ in range(2):
                    with torch.no_grad():
                        model(torch.ones(2, 4))
                model.train()
    assert flow(journal) == f"{FETCH} +i {STEP} +p -p -i {FETCH} +i {STEP} -i {FETCH} +p"


@pytest.mark.parametrize("known", ["the program's own phase is open", "before the step"])
def test_a_model_in_eval_mode_is_no_evaluation_where_the_loop_needs_it(
    known: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with recording(monkeypatch) as journal:
        if known.startswith("the program"):
            monkeypatch.setattr(argus, "status", lambda: {"enabled": True, "open_phases": 1}, raising=False)
        model, optimizer, loader = job()
        teacher = torch.nn.Linear(4, 4).eval()
        argus.torch.attach([model, teacher], optimizer, loader)
        for batch in loader:
            if known == "before the step":
                teacher(batch)
            model(batch).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            if known != "before the step":
                teacher(batch)
    assert flow(journal) == f"{FETCH} +i {STEP} -i {FETCH} +i {STEP} -i {FETCH} +p"


def test_two_loaders_of_one_loop_one_of_them_a_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stream(torch.utils.data.IterableDataset):  # type: ignore[misc]
        def __iter__(self) -> Iterator[Any]:
            yield from torch.ones(4, 4)

    with recording(monkeypatch) as journal:
        model, optimizer, loader = job()
        stream = torch.utils.data.DataLoader(Stream(), batch_size=2)
        argus.torch.attach(model, optimizer, [stream, loader])
        for first, second in zip(stream, loader, strict=False):
            model(first + second).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    both = f"{FETCH} +i {FETCH} {STEP} -i"
    assert flow(journal) == f"{both} {both} {FETCH} +p"


class Stuck(Dataset):
    """Its third batch does not come until somebody has looked."""

    def __init__(self, looked: Any) -> None:
        self.looked = looked

    def __getitem__(self, index: int) -> Any:
        if index == 3:
            assert self.looked.wait(60)
        return super().__getitem__(index)


def test_a_loader_that_stops_shows_as_what_the_loop_waits_in(traced: None) -> None:
    looked = torch.multiprocessing.get_context("fork").Event()
    loader = torch.utils.data.DataLoader(
        Stuck(looked), num_workers=1, multiprocessing_context="fork", prefetch_factor=1
    )
    argus.torch.attach(torch.nn.Linear(4, 4), dataloader=loader)
    seen: list[Any] = []

    def look() -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            before = occurrences("data_loading")
            time.sleep(0.05)
            if before == occurrences("data_loading") == 3 and open_block() is not None:
                seen.append(open_block())
                break
        looked.set()

    thread = threading.Thread(target=look)
    thread.start()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads and fork, from Python 3.12 on
        assert len(list(loader)) == 4
    thread.join()
    assert seen == [("data_loading", "host")]
