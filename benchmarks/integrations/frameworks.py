"""One rank of a training that a library runs, with and without ARGUS in turn: ``frameworks.py KIND ROUNDS``.

KIND is trainer, accelerate, lightning or deepspeed.  Rank 0 prints JSON: seconds
per iteration by round, ``without`` and ``with``, of ``wall`` time and of the
loop's thread's ``cpu`` time.  Each round trains anew.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Any

import torch
import torch.distributed as dist

import argus
import argus.torch

WIDTH, LAYERS, BATCH, ITERATIONS, FIRST = 512, 4, 64, 15, 3
"""``FIRST`` iterations of a round are not measured."""


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layers = (torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU()) for _ in range(LAYERS))
        self.layers = torch.nn.Sequential(*layers)

    def forward(self, x: Any) -> Any:
        return {"loss": self.layers(x).square().mean()}


class Rows(torch.utils.data.Dataset[Any]):
    def __len__(self) -> int:
        return BATCH * ITERATIONS * 2  # a batch for each of two ranks

    def __getitem__(self, index: int) -> Any:
        return {"x": ROW}


ROW = torch.ones(WIDTH)


class Clock:
    """Reads the time when an iteration ends."""

    def __init__(self) -> None:
        self.times: list[tuple[float, float]] = []

    def tick(self) -> None:
        self.times.append((time.perf_counter(), time.thread_time()))

    def per_iteration(self) -> tuple[float, float]:
        """Seconds of wall and of CPU time."""
        measured = self.times[FIRST:]
        wall, cpu = (end - begin for begin, end in zip(measured[0], measured[-1], strict=True))
        return wall / (len(measured) - 1), cpu / (len(measured) - 1)


def trainer(traced: bool) -> tuple[float, float]:
    from transformers import Trainer, TrainerCallback, TrainingArguments

    from argus.integrations.huggingface import ArgusCallback

    clock = Clock()

    class Timer(TrainerCallback):  # type: ignore[misc, unused-ignore]
        def on_step_end(self, *_: Any, **__: Any) -> None:
            clock.tick()

    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(
            folder, use_cpu=True, report_to=[], disable_tqdm=True, save_strategy="no", logging_strategy="no",
            per_device_train_batch_size=BATCH, max_steps=ITERATIONS, learning_rate=1e-6,
        )  # fmt: skip
        callback = ArgusCallback()
        callbacks = [Timer(), *([callback] if traced else [])]
        Trainer(Model(), args, train_dataset=Rows(), callbacks=callbacks).train()
    return finished(clock, callback.handle if traced else None)


def accelerate(traced: bool) -> tuple[float, float]:
    from accelerate import Accelerator

    import argus.integrations.accelerate

    clock, accelerator, model = Clock(), Accelerator(cpu=True), Model()
    handle = argus.integrations.accelerate.attach(accelerator) if traced else None
    loader = torch.utils.data.DataLoader(Rows(), batch_size=BATCH)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch in loader:
        accelerator.backward(model(batch["x"])["loss"])
        optimizer.step()
        optimizer.zero_grad()
        clock.tick()
    return finished(clock, handle)


def lightning(traced: bool) -> tuple[float, float]:
    from lightning.pytorch import Callback, LightningModule, Trainer

    from argus.integrations.lightning import ArgusCallback

    clock = Clock()

    class Module(LightningModule):  # type: ignore[misc, unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.model = Model()

        def training_step(self, batch: Any) -> Any:
            return self.model(batch["x"])["loss"]

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), lr=1e-6)

    class Timer(Callback):  # type: ignore[misc, unused-ignore]
        def on_train_batch_end(self, *_: Any) -> None:
            clock.tick()

    callback = ArgusCallback()
    Trainer(
        accelerator="cpu", devices=2, strategy="ddp", logger=False, enable_progress_bar=False, max_epochs=1,
        enable_model_summary=False, enable_checkpointing=False,
        callbacks=[Timer(), *([callback] if traced else [])],
    ).fit(Module(), torch.utils.data.DataLoader(Rows(), batch_size=BATCH))  # fmt: skip
    return finished(clock, callback.handle if traced else None)


def deepspeed(traced: bool) -> tuple[float, float]:
    import deepspeed as library

    import argus.integrations.deepspeed

    library.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # takes a minute to build
    config = {
        "train_micro_batch_size_per_gpu": BATCH,
        "optimizer": {"type": "Adam", "params": {"torch_adam": True}},
        "zero_optimization": {"stage": 1}, "zero_allow_untested_optimizer": True,
    }  # fmt: skip
    clock = Clock()
    engine, _, loader, _ = library.initialize(model=Model(), config=config, training_data=Rows())
    handle = argus.integrations.deepspeed.attach(engine) if traced else None
    for batch in loader:
        engine.backward(engine(batch["x"])["loss"])
        engine.step()
        clock.tick()
    return finished(clock, handle)


def finished(clock: Clock, handle: Any) -> tuple[float, float]:
    if handle is not None:
        assert handle.active, handle.reason
        handle.detach()
    return clock.per_iteration()


def main(kind: str, rounds: int) -> None:
    torch.set_num_threads(1)
    os.environ["ACCELERATE_USE_CPU"] = "true"
    warnings.simplefilter("ignore")
    for name in ("lightning.pytorch", "lightning.fabric", "DeepSpeed"):
        logging.getLogger(name).setLevel(logging.ERROR)
    dist.init_process_group("gloo")
    argus.init()
    assert argus.status()["enabled"], argus.status()["reason"]
    kinds: dict[str, Callable[[bool], tuple[float, float]]] = {
        "trainer": trainer, "accelerate": accelerate, "lightning": lightning, "deepspeed": deepspeed,
    }  # fmt: skip
    train = kinds[kind]
    taken: dict[str, dict[str, list[float]]] = {
        clock: {"without": [], "with": []} for clock in ("wall", "cpu")
    }
    with redirect_stdout(sys.stderr):
        train(False)  # warm
        for number in range(rounds):  # each goes first as often as the other
            for traced in (False, True) if number % 2 else (True, False):
                dist.barrier()
                for clock, value in zip(("wall", "cpu"), train(traced), strict=True):
                    taken[clock]["with" if traced else "without"].append(value)
    if dist.get_rank() == 0:
        print(json.dumps(taken))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
