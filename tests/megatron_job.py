"""One rank of the two-process job of test_megatron.py: ``megatron_job.py OUT``; writes OUT.<rank>.json.

Megatron-Core's own schedule, parallel state and timers, on the CPU: what they
ask of CUDA is answered by the CPU.  Rank 1 takes longer in its forward pass.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode

import argus
import argus.megatron
from argus._native import monotonic_ns, own_segments
from argus.segment.reader import read

QUICK, SLOW, MICROBATCHES, ITERATIONS = 0.005, 0.03, 4, 6


class OnCpu(TorchFunctionMode):
    """Makes tensors on the CPU where Megatron asks for CUDA."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if kwargs.get("device") is not None:
            kwargs["device"] = "cpu"
        return function(*args, **kwargs)


def build(seconds: float, stages: int) -> Any:
    from megatron.core.enums import ModelType
    from megatron.core.timers import Timers
    from megatron.core.transformer import TransformerConfig

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.config = TransformerConfig(
                num_layers=2, hidden_size=4, num_attention_heads=1, pipeline_dtype=torch.float32,
                pipeline_model_parallel_size=stages, batch_p2p_comm=False, timers=Timers(2, "minmax"),
            )  # fmt: skip
            self.model_type, self.linear, self.received = (
                ModelType.encoder_or_decoder,
                torch.nn.Linear(4, 4),
                None,
            )
            self.share_embeddings_and_output_weights = False
            self.pre_process, self.post_process = dist.get_rank() == 0, dist.get_rank() == stages - 1

        def set_input_tensor(self, tensors: Any) -> None:
            self.received = tensors[0]

        def forward(self, x: Any) -> Any:
            time.sleep(seconds)
            return self.linear(x if self.received is None else self.received)

    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.distributed.finalize_model_grads import finalize_model_grads
    from megatron.core.optimizer.optimizer import FP32Optimizer, OptimizerConfig

    model = Model()
    reduced = DistributedDataParallel(model.config, DistributedDataParallelConfig(), model)
    model.config.finalize_model_grads_func = finalize_model_grads
    settings = OptimizerConfig(optimizer="sgd", lr=0.01, clip_grad=0.0)
    settings.timers = model.config.timers
    return reduced, FP32Optimizer(torch.optim.SGD(model.parameters(), lr=0.01), settings, lambda *_: None)


def forward_step(batches: Any, model: Any) -> tuple[Any, Any]:
    timers = model.config.timers
    timers("batch-generator", log_level=2).start()
    x = next(batches)
    timers("batch-generator").stop()

    def loss(output: Any) -> tuple[Any, dict[str, Any]]:
        value = output.square().mean()
        return value, {"loss": value.detach()}

    return model(x), loss


def train(stages: int) -> dict[str, Any]:
    from megatron.core import parallel_state
    from megatron.core.pipeline_parallel import get_forward_backward_func
    from megatron.core.timers import Timer

    parallel_state.initialize_model_parallel(pipeline_model_parallel_size=stages)
    handle = argus.megatron.attach()
    assert argus.megatron.attach() is handle
    with OnCpu():
        model, optimizer = build(SLOW if dist.get_rank() == 1 else QUICK, stages)

    def run(forward_only: bool) -> None:
        get_forward_backward_func()(
            forward_step_func=forward_step, data_iterator=iter([torch.ones(2, 1, 4)] * MICROBATCHES),
            model=model, num_microbatches=MICROBATCHES, seq_length=2, micro_batch_size=1,
            forward_only=forward_only,
        )  # fmt: skip

    with OnCpu():
        for _ in range(ITERATIONS):
            model.zero_grad_buffer()
            optimizer.zero_grad()
            run(forward_only=False)
            optimizer.step()
        run(forward_only=True)
        model.config.timers("save-checkpoint", log_level=0).start()
        model.config.timers("save-checkpoint").stop()
        run(forward_only=False)  # ends the one before
    (segment,) = own_segments()
    state = read(segment.snapshot(), monotonic_ns())
    status = argus.status()
    reason = handle.reason
    handle.detach()
    argus.finish()
    parallel_state.destroy_model_parallel()
    seconds = state.slots["phase"] / 1e9
    return {
        "reason": reason,
        "coordinates": {name: status[name] for name in ("dp", "tp", "pp", "cp", "ep", "role")},
        "iterations": status["iterations"],
        "kinds": {phase.name: phase.kind for phase in state.phases},
        "counts": {phase.name: phase.seconds.count for phase in state.phases},
        "seconds": {phase.name: seconds[:, phase.index].tolist() for phase in state.phases},
        "communicators": sorted({collective.group_id for collective in state.collectives}),
        "untouched": not hasattr(Timer.start, "__wrapped__"),
    }


def main(out: str) -> None:
    torch.cuda.synchronize = lambda *_: None  # type: ignore[assignment]
    torch.cuda.current_device = lambda: torch.device("cpu")  # type: ignore[assignment,return-value]
    dist.init_process_group("gloo")
    results = {str(stages): train(stages) for stages in (1, 2)}
    with open(f"{out}.{dist.get_rank()}.json", "w") as file:
        json.dump(results, file)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
