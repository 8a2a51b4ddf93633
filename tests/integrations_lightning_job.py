"""One rank of the job of test_integrations_lightning.py: ``integrations_lightning_job.py FOLDER``.

Trains with the documented lines, with automatic and with manual optimization,
writes what the segment holds into FOLDER/ddp.<rank>.json, then trains until
FOLDER holds ``stop``, and once more on rank 1 alone (alone.json).
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from torch._dynamo.testing import CompileCounter

import argus
import argus.torch
from argus.integrations import lightning
from argus.integrations.lightning import ArgusCallback
from integrations_support import CHECKPOINT, Net, Rows, documented, measured

RANK = int(os.environ["RANK"])


class Automatic(LightningModule):
    def __init__(self, sleeps: bool = True, saves_to: Path | None = None) -> None:
        super().__init__()
        self.net = Net(RANK, sleeps)
        self.saves_to = saves_to

    def training_step(self, batch: Any) -> Any:
        return self.net(batch["x"]).square().mean()

    def validation_step(self, batch: Any) -> None:
        self.net(batch["x"])

    def on_train_batch_end(self, *_: Any) -> None:
        if self.saves_to is not None and self.global_step == 2:
            self.trainer.save_checkpoint(self.saves_to)

    def on_save_checkpoint(self, checkpoint: Any) -> None:
        time.sleep(CHECKPOINT)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=1e-5)


class Manual(Automatic):
    """Two optimizers step in each batch."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: Any) -> None:
        for optimizer in self.optimizers():
            optimizer.zero_grad()
            self.manual_backward(self.net(batch["x"]).square().mean())
            optimizer.step()

    def configure_optimizers(self) -> Any:
        return [torch.optim.SGD(layer.parameters(), lr=1e-5) for layer in (self.net.first, self.net.second)]


class Unseen(Manual):
    def training_step(self, batch: Any) -> None:
        optimizer = self.optimizers()[0]
        self.net(batch["x"]).square().mean().backward()
        optimizer.step()


class Endless(torch.utils.data.IterableDataset[Any]):
    """Rows until there is a file; all ranks end at the same one, some time later."""

    def __init__(self, stop: Path) -> None:
        self.stop = stop

    def __iter__(self) -> Iterator[Any]:
        while True:
            seen = torch.tensor([int(self.stop.exists())])
            torch.distributed.all_reduce(seen)
            if seen.item():
                return
            yield {"x": torch.ones(8)}


def options(folder: Path, **more: Any) -> dict[str, Any]:
    return {
        "accelerator": "cpu", "default_root_dir": folder, "logger": False, "enable_progress_bar": False,
        "enable_model_summary": False, **more,
    }  # fmt: skip


def train(module: Any, **more: Any) -> tuple[Any, dict[str, Any]]:
    """With the documented lines; the trainer, and what was measured."""
    names: dict[str, Any] = {
        "module": module, "options": more,
        "train_loader": torch.utils.data.DataLoader(Rows(32), batch_size=2),
        "eval_loader": torch.utils.data.DataLoader(Rows(4), batch_size=2),
    }  # fmt: skip
    exec(documented("Lightning"), names)
    trainer = names["trainer"]
    callback = lightning.attach(trainer)
    assert sum(isinstance(each, ArgusCallback) for each in trainer.callbacks) == 1
    result = {**measured(), "active": callback.handle.active, "reason": callback.handle.reason}
    callback.handle.detach()
    argus.finish()
    pickle.dumps([callback, module])
    return trainer, result


def frames(**more: Any) -> int:
    """Graphs that torch.compile makes of a small training."""
    torch._dynamo.reset()
    counter = CompileCounter()
    module = torch.compile(Automatic(sleeps=False), backend=counter)
    loader = torch.utils.data.DataLoader(Rows(24, 0), batch_size=2)
    Trainer(max_steps=3, **more).fit(module, loader)
    return counter.frame_count


def main(folder: Path) -> None:
    ddp = {"devices": 2, "strategy": "ddp"}
    result: dict[str, Any] = {}
    usual = options(folder, max_epochs=2, val_check_interval=4, accumulate_grad_batches=2)
    saved = folder / "saved.ckpt"
    trainer, result["automatic"] = train(Automatic(saves_to=saved), **ddp, **usual)
    result["caught"] = [name for name in ("save_checkpoint",) if name in trainer.__dict__]
    result["stateful"] = sorted(torch.load(saved, weights_only=False)["callbacks"])

    resumed = Trainer(**ddp, **usual)
    lightning.attach(resumed)
    resumed.fit(Automatic(), torch.utils.data.DataLoader(Rows(32), batch_size=2), ckpt_path=saved)
    result["resumed"] = {**measured(), "steps": resumed.global_step}
    lightning.attach(resumed).handle.detach()
    argus.finish()

    trainer, result["manual"] = train(
        Manual(), **ddp, **options(folder, max_steps=16, enable_checkpointing=False)
    )
    trainer, result["unseen"] = train(
        Unseen(), **ddp, **options(folder, max_steps=3, enable_checkpointing=False)
    )
    plain = options(folder, enable_checkpointing=False, **ddp)
    result["frames"] = [frames(**plain), frames(**plain, callbacks=[ArgusCallback()])]
    argus.finish()
    (folder / f"ddp.{RANK}.json").write_text(json.dumps(result))

    forever = Trainer(**plain, max_epochs=1)
    lightning.attach(forever)
    forever.fit(Automatic(), torch.utils.data.DataLoader(Endless(folder / "stop"), batch_size=2))
    argus.finish()
    torch.distributed.destroy_process_group()

    if RANK == 1:  # one process alone, where nothing wraps the module
        single = options(folder, devices=1, max_epochs=1, limit_val_batches=1, enable_checkpointing=False)
        _, result = train(Automatic(), **single)
        (folder / "alone.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
