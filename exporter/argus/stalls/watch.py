"""Puts the hooks on, and takes them off again."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import NamedTuple

from argus import _native
from argus.stalls import blocking, compilers
from argus.stalls.imports import ImportWatch
from argus.stalls.patches import Patches
from argus.stalls.stall import Compilation, Stall

SOURCE = "stalls"
"""In ``argus_tracer_enabled``: 0 once any of them has given up."""

Install = Callable[[ModuleType, Stall, Patches], None]


class _Hook(NamedTuple):
    """What is seen of one library.

    Attributes:
        what: In words.
        kind: Of the stall.
        module: It is put on when this one is imported.
        install: Puts it on.
    """

    what: str
    kind: str
    module: str
    install: Install


HOOKS = (
    _Hook("torch.compile", "jit_compile", "torch._dynamo.callback", compilers.torch_compile),
    _Hook(
        "Inductor's autotuning", "jit_compile", "torch._inductor.runtime.triton_heuristics",
        compilers.inductor_autotuning,
    ),
    _Hook("Triton", "jit_compile", "triton", compilers.triton),
    _Hook("the CuTe DSL", "jit_compile", "cutlass.base_dsl.dsl", compilers.cute_dsl),
    _Hook("JAX", "jit_compile", "jax._src.compiler", compilers.jax),
    _Hook("Numba", "jit_compile", "numba.core.event", compilers.numba),
    _Hook("torch.save", "checkpoint", "torch", blocking.TORCH_SAVE),
    _Hook(
        "torch.distributed.checkpoint", "checkpoint", "torch.distributed.checkpoint",
        blocking.DISTRIBUTED_CHECKPOINT,
    ),
    _Hook("safetensors", "checkpoint", "safetensors.torch", blocking.SAFETENSORS),
    _Hook("process groups", "rendezvous", "torch.distributed.distributed_c10d", blocking.PROCESS_GROUPS),
)  # fmt: skip


class Watch:
    """The hooks of this process, from `argus.init()` to `argus.finish()`."""

    def __init__(self, report: Callable[[str], None], environ: Mapping[str, str]) -> None:
        """Put them on, in the thread of the training loop; never raises.

        Args:
            report: Tells the user, once.
            environ: As ``os.environ``; ``ARGUS_STALLS=0`` leaves all of them off.
        """
        self._report = report
        self._patches = Patches()
        self._imports = ImportWatch()
        self._stalls: dict[str, Stall] = {}
        if environ.get("ARGUS_STALLS", "").strip().lower() in ("0", "false", "no", "off"):
            return
        _native.source(SOURCE, True)
        gc.callbacks.append(_native.on_collection)
        compilation = Compilation(self._complain)
        pauses = (Stall(kind, self._complain) for kind in ("checkpoint", "rendezvous"))
        self._stalls = {stall.kind: stall for stall in (compilation, *pauses)}
        for hook in HOOKS:
            self._imports.when_imported(hook.module, functools.partial(self._install, hook))

    def close(self) -> None:
        """Take them off."""
        while _native.on_collection in gc.callbacks:
            gc.callbacks.remove(_native.on_collection)
        self._imports.close()
        for stall in self._stalls.values():
            stall.close()
        self._patches.undo()

    def _install(self, hook: _Hook, module: ModuleType) -> None:
        try:
            hook.install(module, self._stalls[hook.kind], self._patches)
        except Exception as error:
            self._complain(
                f"{hook.kind} of {hook.what} is not seen: {type(error).__name__}: {error}; training goes on"
            )

    def _complain(self, text: str) -> None:
        _native.source(SOURCE, False)
        self._report(text)
