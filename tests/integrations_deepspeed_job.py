"""One rank of the job of test_integrations_deepspeed.py: ``integrations_deepspeed_job.py FOLDER``.

Trains with the documented lines and two stages of ZeRO, and writes what the
segment holds into FOLDER/deepspeed.<rank>.json.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
from pathlib import Path
from typing import Any

import deepspeed
import torch
from torch._dynamo.testing import CompileCounter

import argus
import argus.integrations.deepspeed
import argus.torch
from integrations_support import Net, Rows, documented, measured

RANK = int(os.environ["RANK"])
# A kernel for collectives in shared memory, which takes a minute to build, and which training does without.
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


def config(stage: int) -> dict[str, Any]:
    return {
        "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2,
        "optimizer": {"type": "SGD", "params": {"lr": 1e-5}},
        "zero_optimization": {"stage": stage}, "zero_allow_untested_optimizer": True,
    }  # fmt: skip


def epoch(engine: Any, loader: Any) -> None:
    for batch in loader:
        engine.backward(engine(batch["x"]).square().mean())
        engine.step()


def train(stage: int, folder: Path) -> dict[str, Any]:
    names: dict[str, Any] = {"model": Net(RANK), "config": config(stage), "train_set": Rows(32)}
    exec(documented("DeepSpeed"), names)
    engine, loader = names["engine"], names["loader"]
    handle = argus.integrations.deepspeed.attach(engine)
    assert argus.integrations.deepspeed.attach(engine) is handle
    for number in range(2):
        epoch(engine, loader)
        engine.save_checkpoint(str(folder), tag=f"{stage}-{number}")
        engine.eval()
        with torch.no_grad():
            engine(torch.ones(2, 8))
        engine.train()
    result = {**measured(), "active": handle.active, "reason": handle.reason, "steps": engine.global_steps}
    handle.detach()
    pickle.dumps(engine.module.state_dict())
    result["caught"] = "_take_model_step" in engine.__dict__
    argus.finish()
    return result


def frames(attached: bool) -> int:
    """Graphs that torch.compile makes of a small training."""
    torch._dynamo.reset()
    counter, model = CompileCounter(), Net(RANK, sleeps=False)
    model.compile(backend=counter)
    engine, _, loader, _ = deepspeed.initialize(model=model, config=config(1), training_data=Rows(16, 0))
    if attached:
        argus.integrations.deepspeed.attach(engine)
    epoch(engine, loader)
    return counter.frame_count


def main(folder: Path) -> None:
    result: dict[str, Any] = {f"stage {stage}": train(stage, folder) for stage in (1, 3)}
    result["frames"] = [frames(False), frames(True)]
    (folder / f"deepspeed.{RANK}.json").write_text(json.dumps(result))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
