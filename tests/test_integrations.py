"""What holds for all integrations: nothing is imported unasked, and a hook that fails harms nobody."""

from __future__ import annotations

import logging
import subprocess
import sys
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed (pip install argus-gpu[torch])")

import argus.torch  # noqa: E402
from argus.integrations import deepspeed  # noqa: E402
from argus.integrations.hooks import guarded  # noqa: E402
from argus.torch import Handle, attachment  # noqa: E402
from argus.torch.modules import is_caught  # noqa: E402
from torch_support import recording  # noqa: E402

IMPORTS = """
import sys
libraries = ["accelerate", "deepspeed", "lightning", "pytorch_lightning", "transformers"]
import argus, argus.torch, argus.integrations.accelerate, argus.integrations.deepspeed
assert not set(libraries) & set(sys.modules), set(libraries) & set(sys.modules)
sys.modules.update(dict.fromkeys(libraries))  # as if none were installed
for module, library in (("huggingface", "transformers"), ("lightning", "lightning")):
    try:
        __import__(f"argus.integrations.{module}")
    except ModuleNotFoundError as error:
        assert library in str(error), error
    else:
        raise AssertionError(module)
"""

ABSENT = """
import sys
sys.modules["argus._native"] = None  # built for another machine
import torch, argus.torch, argus.megatron, argus.integrations.deepspeed, argus.integrations.accelerate
batches = [torch.ones(2, 4)]
model = torch.nn.Linear(4, 4)
handle = argus.torch.attach(model, torch.optim.SGD(model.parameters()), batches)
for batch in handle.dataloader:
    model(batch).sum().backward()
handle.detach()
assert not handle.active and "can't be loaded" in handle.reason
"""


def test_training_goes_on_where_the_tracer_cannot_be_loaded() -> None:
    command = [sys.executable, "-W", "error", "-c", ABSENT]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_libraries_are_imported_by_their_own_module_only() -> None:
    subprocess.run([sys.executable, "-W", "error", "-c", IMPORTS], check=True, timeout=120)


class Callback:
    def __init__(self, handle: Handle) -> None:
        self.handle = handle

    @guarded
    def hook(self, trainer: Any) -> None:
        trainer.renamed_in_this_release()


def test_a_hook_that_fails_turns_tracing_off(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with recording(monkeypatch), caplog.at_level(logging.WARNING, "argus.torch"):
        handle = argus.torch.attach(torch.nn.Linear(1, 1))
        callback = Callback(handle)
        assert handle.active
        for _ in range(2):
            callback.hook(object())
        assert not handle.active
        assert "AttributeError in hook" in handle.reason
        handle.detach()
    assert len(caplog.records) == 1


def test_one_handle_takes_off_what_two_attached(monkeypatch: pytest.MonkeyPatch) -> None:
    with recording(monkeypatch):
        whole = Handle(None, "nothing yet")
        models = [torch.nn.Linear(1, 1) for _ in range(2)]
        for model in models:
            whole.absorb(argus.torch.attach(model))
        assert whole.active
        whole.detach()
        assert not whole.active
        assert not any(is_caught(model) for model in models)
        assert attachment._recorder is None


class DeepSpeedEngine(torch.nn.Module):
    """By name, as the real one of DeepSpeed's pipelines."""

    def train_batch(self) -> None:
        """What tells it from an engine whose loop is the program's; nobody calls it here."""


def test_what_is_no_engine_for_the_loop(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(TypeError, match="engine must be DeepSpeed's, not Linear"):
        deepspeed.attach(torch.nn.Linear(1, 1))
    with caplog.at_level(logging.WARNING, "argus.torch"):
        handle = deepspeed.attach(DeepSpeedEngine())
    assert not handle.active
    assert "train_batch()" in handle.reason
    assert "pipeline engine is not traced" in caplog.text
