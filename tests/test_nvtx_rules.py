"""The rules for NVTX ranges: what the frameworks' names become, the user's file, the command."""

from __future__ import annotations

import random
import string
import time
from pathlib import Path

import pytest

from argus import _native
from argus.cli import main
from argus.nvtx.injection import library
from nvtx_support import patterns

DEFAULTS, NO_COMPLAINT = _native.nvtx_rules()


@pytest.mark.parametrize(
    ("name", "target"),
    [
        # Megatron-LM: the names of its timers, and those of Megatron-Core's nvtx_range_push.
        ("forward-compute", "forward:compute"),
        ("backward-compute", "backward:compute"),
        ("forward-step", "forward:compute"),
        ("forward-recv", "send_recv:communication"),
        ("backward-send-forward-recv", "send_recv:communication"),
        ("forward-backward", "forward_backward:mixed"),
        ("grads-reduce-scatter", "grad_sync:communication"),
        ("all-grads-sync", "grad_sync:communication"),
        ("embedding-grads-all-reduce", "grad_sync:communication"),
        ("params-all-gather", "all_gather:communication"),
        ("optimizer", "optimizer:compute+"),
        ("Optimizer", "optimizer:compute+"),
        ("optimizer-inner-step", "optimizer:compute"),
        ("batch-generator", "data_loading:host"),
        ("save-checkpoint", "pause:checkpoint"),
        ("save-checkpoint-non-persistent", "pause:checkpoint"),
        ("evaluate", "pause:evaluation"),
        ("megatron.core.transformer.transformer_layer.forward.self_attention", "attention:compute"),
        ("megatron.core.transformer.transformer_layer._forward_mlp.mlp", "mlp:compute"),
        ("megatron.core.transformer.transformer_layer._forward_mlp.mlp_bda", None),
        (
            "megatron.core.pipeline_parallel.schedules.forward_backward_pipelining_with_interleaving.warmup",
            "pipeline_warmup:mixed",
        ),
        (
            "megatron.core.pipeline_parallel.schedules.forward_backward_pipelining_without_interleaving.cooldown",
            "pipeline_cooldown:mixed+",
        ),
        # DeepSpeed: qualified names of functions.
        ("DeepSpeedEngine.forward", "forward:mixed"),
        ("DeepSpeedEngine.backward", "backward:mixed"),
        ("DeepSpeedEngine.allreduce_gradients", "grad_sync:communication"),
        ("DeepSpeedZeroOptimizer_Stage3.step", "optimizer:mixed+"),
        ("DeepSpeedZeroOptimizer.step", "optimizer:mixed+"),
        ("PartitionedParameterCoordinator.fetch_sub_module", "param_fetch:mixed"),
        ("PartitionedParameterCoordinator.__all_gather_params", "all_gather:communication"),
        ("AllGatherCoalescedHandle.wait", "all_gather:communication"),
        (
            "Init._convert_to_deepspeed_param.<locals>.all_gather_coalesced",
            "all_gather:communication",
        ),
        ("reduce_scatter_coalesced", "reduce_scatter:communication"),
        ("DeepSpeedZeroOptimizer_Stage3.__avg_scatter_grads", "reduce_scatter:communication"),
        # Lightning: actions of its profiler, alone and as its PyTorchProfiler writes them.
        ("run_training_batch", "iteration"),
        ("[pl][profile]run_training_batch", "iteration"),
        ("[pl][profile][_TrainingEpochLoop].train_dataloader_next", "data_loading:host"),
        ("[pl][profile][Strategy]DDPStrategy.training_step", "forward:compute"),
        ("[Strategy]SingleDeviceStrategy.backward", "backward:compute"),
        ("[pl][profile][LightningModule]BoringModel.optimizer_step", "optimizer:compute"),
        ("[pl][profile][Strategy]DDPStrategy.validation_step", "pause:evaluation"),
        ("[pl][profile][Callback]ModelSummary.on_fit_start", None),
        # torch.autograd.profiler.emit_nvtx: what it appends to a name says nothing about it.
        ("Optimizer.step#AdamW.step", "optimizer:compute+"),
        ("Optimizer.step#AdamW.step, op_id = 9", "optimizer:compute+"),
        ("Optimizer.zero_grad#AdamW.zero_grad", None),
        ("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "data_loading:host"),
        ("autograd::engine::evaluate_function: AddmmBackward0, seq = 7", "backward:compute"),
        ("DistributedDataParallel.forward, seq = 3, op_id = 7, sizes = [[2, 3]]", "forward:compute"),
        ("FSDP::all_gather_copy_out", "all_gather:communication"),
        ("aten::mm, seq = 12, op_id = 9, sizes = [[8, 8], [8, 8]]", None),
        ("forward, seq = 1", "forward:compute"),
        ("forward, really", None),
        # By hand.
        ("iteration 12", "iteration"),
        ("iteration12", "iteration"),
        ("ProfilerStep#3", "iteration"),
        ("Forward Pass", "forward:compute"),
        ("backward", "backward:compute"),
        ("Optimizer Step", "optimizer:compute+"),
        ("data_loading", "data_loading:host"),
        ("Load Data", "data_loading:host"),
        ("validation", "pause:evaluation"),
        ("save_checkpoint", "pause:checkpoint"),
        ("checkpoint", None),  # may be of activations
        ("forward_hook", None),
        ("", None),
    ],
)
def test_names_of_frameworks(name: str, target: str | None) -> None:
    assert _native.nvtx_target(DEFAULTS, name) == target


def test_every_rule_of_argus_can_be_written_by_a_user(tmp_path: Path) -> None:
    """So the command's list is a file of rules, and each of its lines says what it does."""
    listed = _native.nvtx_defaults()
    file = patterns(tmp_path / "rules", *(f"{target} {pattern}" for target, pattern in listed))
    rules, complaint = _native.nvtx_rules(file)
    assert complaint == ""
    for _, pattern in listed:
        name = pattern.strip("^$").replace("*", "x").replace("?", "-")
        assert _native.nvtx_target(rules, name) == _native.nvtx_target(DEFAULTS, name) is not None
        assert pattern[0] == "^", "a rule that may begin anywhere costs every range"
    assert NO_COMPLAINT == ""


def test_the_users_rules_go_first_and_in_order(tmp_path: Path) -> None:
    file = patterns(
        tmp_path / "rules",
        "# mine",
        "",
        "  ignore    @NCCL *",
        "mlp:compute+\tLayer ?.MLP",
        "grad_sync  ^all reduce$",
        "ignore      ^forward$",
        "late        mlp",
        "pause:nap   ^sleep*",
    )
    rules, complaint = _native.nvtx_rules(file)
    assert complaint == ""

    def target(name: str, domain: str = "") -> str | None:
        return _native.nvtx_target(rules, name, domain)

    assert target("the layer 7.mlp") == "mlp:compute+"
    assert target("another MLP") == "late:compute"
    assert target("all reduce") == "grad_sync:communication"  # its name decides
    assert target("all reduce", "nccl") == "ignore"
    assert target("forward") == "ignore"
    assert target("backward") == "backward:compute"
    assert target("sleeping") == "pause:nap"


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("mlp:fast ^mlp$", "a phase's kind is compute, host, communication or mixed: 'mlp:fast'"),
        (":compute ^mlp$", "write phase, phase:kind, pause:kind, iteration or ignore: ':compute'"),
        ("pause: x", "write phase, phase:kind, pause:kind, iteration or ignore: 'pause:'"),
        ("pause x", "write phase, phase:kind, pause:kind, iteration or ignore: 'pause'"),
        ("+ x", "write phase, phase:kind, pause:kind, iteration or ignore: '+'"),
        ("x" * 64 + " y", f"a name of more than 63 bytes: '{'x' * 60}'"),
        ("ignore @NCCL", "a domain without a pattern; write * for all of its ranges: 'ignore'"),
        ("mlp", "a target without a pattern; write: target pattern"),
        ("mlp " + "y" * 201, "a pattern of more than 200 bytes; a part of the name is enough"),
    ],
)
def test_wrong_lines_are_named_and_left_out(tmp_path: Path, line: str, what: str) -> None:
    file = patterns(tmp_path / "rules", "good ^good$", line, "better ^better$")
    rules, complaint = _native.nvtx_rules(file)
    assert complaint == f"{file}:2: {what}"
    assert _native.nvtx_target(rules, "good") == "good:compute"
    assert _native.nvtx_target(rules, "better") == "better:compute"
    assert _native.nvtx_target(rules, "forward") == "forward:compute"


def test_a_file_that_can_not_be_read_leaves_argus_own_rules(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    rules, complaint = _native.nvtx_rules(missing)
    assert complaint == f"{missing}: No such file or directory"
    assert _native.nvtx_target(rules, "forward") == "forward:compute"
    assert _native.nvtx_rules(tmp_path)[1] == f"{tmp_path}: Is a directory"


def test_the_longest_file_of_the_worst_patterns_takes_its_time_but_not_more(tmp_path: Path) -> None:
    worst = "*".join("ab" * 20)
    file = patterns(tmp_path / "rules", *(f"x{i} {worst}c{i}" for i in range(256)))
    rules, complaint = _native.nvtx_rules(file)
    assert complaint == ""
    begin = time.perf_counter()
    assert _native.nvtx_target(rules, "ab" * 10_000) is None
    assert time.perf_counter() - begin < 0.5


def test_random_names_do_no_harm() -> None:
    generator = random.Random(5)
    for _ in range(5000):
        name = "".join(generator.choices(string.printable, k=generator.randrange(600)))
        _native.nvtx_target(DEFAULTS, name, name[:7])
    for tail in (",", ", ", ", seq", ", seq = ", ", seq = 1", ",,, op_id = 1"):
        assert _native.nvtx_target(DEFAULTS, "forward" + tail) == (
            "forward:compute" if tail.startswith(", seq = ") else None
        )


# ---- the command ----


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nvtx", "--path"]) == 0
    assert capsys.readouterr().out == f"{library()}\n"
    assert main(["nvtx", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(_native.nvtx_defaults())
    assert lines[0].split() == ["iteration", "^iteration*"]
    file = patterns(tmp_path / "rules", "mine:host @d ^x$")
    assert main(["nvtx", "--patterns", file, "--domain", "d", "x", "forward", "nothing of ours"]) == 0
    shown = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    assert shown == [["mine:host", "x"], ["forward:compute", "forward"], ["-", "nothing of ours"]]
    assert main(["nvtx", "--patterns", str(tmp_path / "none"), "x"]) == 2
    assert "none: No such file or directory" in capsys.readouterr().err
