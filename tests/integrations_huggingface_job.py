"""One rank of the job of test_integrations_huggingface.py: ``integrations_huggingface_job.py FOLDER``.

Trains with the documented lines of Trainer, then of Accelerate, and writes what
the segment holds into FOLDER/<library>.<rank>.json.
"""

from __future__ import annotations

import copy
import json
import os
import pickle
import sys
from pathlib import Path
from typing import Any

import torch
from torch._dynamo.testing import CompileCounter
from transformers import Trainer, TrainingArguments

import argus
import argus.torch
from argus.integrations import huggingface
from integrations_support import Net, Rows, documented, measured

RANK = int(os.environ["RANK"])


class Model(torch.nn.Module):
    """What Trainer expects: keyword arguments in, a loss out."""

    def __init__(self, sleeps: bool = True) -> None:
        super().__init__()
        self.net = Net(RANK, sleeps)

    def forward(self, x: Any, labels: Any = None) -> dict[str, Any]:
        y = self.net(x)
        return {"loss": y.square().mean(), "logits": y}


def arguments(folder: Path, **options: Any) -> TrainingArguments:
    return TrainingArguments(
        str(folder), use_cpu=True, report_to=[], disable_tqdm=True, per_device_train_batch_size=2,
        per_device_eval_batch_size=4, remove_unused_columns=False, **options,
    )  # fmt: skip


def frames(folder: Path, *callbacks: Any) -> int:
    """Graphs that torch.compile makes of a small training."""
    torch._dynamo.reset()
    counter, model = CompileCounter(), Model(sleeps=False)
    model.compile(backend=counter)
    args = arguments(folder, max_steps=3, save_strategy="no")
    Trainer(model, args, train_dataset=Rows(24, 0), callbacks=list(callbacks)).train()
    return counter.frame_count


def trainer(folder: Path) -> dict[str, Any]:
    options = {
        "max_steps": 7, "gradient_accumulation_steps": 2, "save_strategy": "steps", "save_steps": 5,
        "eval_strategy": "steps", "eval_steps": 3, "logging_steps": 2,
    }  # fmt: skip
    names: dict[str, Any] = {
        "model": Model(), "args": arguments(folder, **options), "train_set": Rows(40), "eval_set": Rows(8)
    }  # fmt: skip
    exec(documented("Hugging Face Trainer"), names)
    first = names["trainer"]
    callback = huggingface.attach(first)
    result = {"first": measured(), "active": callback.handle.active, "reason": callback.handle.reason}
    assert sum(isinstance(each, huggingface.ArgusCallback) for each in first.callback_handler.callbacks) == 1
    result["caught"] = [name for name in huggingface._PAUSES if name in first.__dict__]
    state = json.loads((folder / "checkpoint-5" / "trainer_state.json").read_text())
    result["stateful"] = sorted(state["stateful_callbacks"])
    pickle.loads(pickle.dumps(first.model))
    copy.deepcopy(callback)
    assert pickle.loads(pickle.dumps(callback)).handle.reason == "training has not begun"

    again = Trainer(Model(), names["args"], train_dataset=names["train_set"], eval_dataset=names["eval_set"])
    resumed = huggingface.attach(again)
    again.train(resume_from_checkpoint=str(folder / "checkpoint-5"))
    result |= {"resumed": measured(), "steps": again.state.global_step}
    resumed.handle.detach()
    result["frames"] = [frames(folder), frames(folder, huggingface.ArgusCallback())]
    return result


def accelerate(folder: Path) -> dict[str, Any]:
    from accelerate.state import AcceleratorState, GradientState

    AcceleratorState._reset_state()
    GradientState._reset_state()
    model = Net(RANK)
    names: dict[str, Any] = {
        "model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.01),
        "train_loader": torch.utils.data.DataLoader(Rows(48), batch_size=2),
        "eval_loader": torch.utils.data.DataLoader(Rows(4), batch_size=2),
    }  # fmt: skip
    exec(documented("Accelerate"), names)
    accelerator, model = names["accelerator"], names["model"]
    handle = argus.integrations.accelerate.attach(accelerator)
    for _ in range(2):
        model.train()
        for batch in names["train_loader"]:
            with accelerator.accumulate(model):
                accelerator.backward(model(batch["x"]).square().mean())
                names["optimizer"].step()
                names["optimizer"].zero_grad()
        model.eval()
        with torch.no_grad():
            for batch in names["eval_loader"]:
                model(batch["x"])
    accelerator.save_state(str(folder / "state"))
    result = {"trained": measured(), "active": handle.active, "reason": handle.reason}
    for item in (accelerator, names["train_loader"], accelerator.unwrap_model(model)):
        pickle.dumps(item)
    handle.detach()
    result["caught"] = hasattr(type(accelerator).prepare, "__wrapped__")
    return result


def main(folder: Path) -> None:
    for number, part in enumerate((trainer, accelerate)):
        (folder / str(number)).mkdir(exist_ok=True)
        result = part(folder / str(number))
        argus.finish()
        (folder / f"{part.__name__}.{RANK}.json").write_text(json.dumps(result))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
