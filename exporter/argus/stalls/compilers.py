"""Just-in-time compilers: where each begins and ends a compilation.

These are the libraries' own hooks where they have such, else the function that
compiles.  A library, or a release of it, that has neither raises `LookupError`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from argus.stalls.patches import Patches
from argus.stalls.stall import FRAMES, Stall, around


def torch_compile(module: ModuleType, stall: Stall, patches: Patches) -> None:
    """TorchDynamo, AOTAutograd, Inductor and CUDA graph trees, by ``torch._dynamo.callback``.

    Callbacks that are registered there are thrown out by ``torch._dynamo.reset()``,
    so the handler's own calls are caught.
    """
    handler: Any = module.callback_handler
    events = _Events(stall)

    def hidden() -> bool:
        try:
            _hide_frames()
        except Exception as error:  # a release of torch that argus.torch can't be imported with
            stall.fail(error)
            return False
        return True

    def starting(run: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(run)
        def run_start_callbacks(*args: Any, **kwargs: Any) -> Any:
            if hidden():
                events.start()
            return run(*args, **kwargs)

        return run_start_callbacks

    def ending(run: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(run)
        def run_end_callbacks(*args: Any, **kwargs: Any) -> Any:
            events.end()
            return run(*args, **kwargs)

        return run_end_callbacks

    if not (
        patches.attribute(handler, "run_start_callbacks", starting)
        and patches.attribute(handler, "run_end_callbacks", ending)
    ):
        raise LookupError("torch._dynamo.callback has changed")


@functools.cache
def _hide_frames() -> None:
    """Only now, for torch is not imported in full when its compiler is."""
    from argus.torch.compiler import leave_alone

    for code in FRAMES:
        leave_alone(code)


def inductor_autotuning(module: ModuleType, stall: Stall, patches: Patches) -> None:
    """Inductor's choice among compiled kernels, which it tries out when they are first called."""
    tuner = module.CachingAutotuner
    names = ("precompile", "autotune_to_one_config")
    _need([patches.attribute(tuner, name, _within(stall)) for name in names])


def triton(module: ModuleType, stall: Stall, patches: Patches) -> None:
    """Triton: a kernel's first launch with new constants or types, and the trials of its autotuner."""
    runtime, compiling = module.runtime, ("triton", "triton.compiler", "triton.compiler.compiler")
    _need(
        [
            patches.attribute(runtime.JITFunction, "_do_compile", _within(stall)),
            patches.function(compiling, "compile", _within(stall)),
        ]
    )
    patches.attribute(runtime.Autotuner, "_bench", _within(stall))


def cute_dsl(module: ModuleType, stall: Stall, patches: Patches) -> None:
    """CUTLASS's DSLs, FlashAttention's CuTe kernels among them: tracing, and compiling what is not cached."""
    dsl = module.BaseDSL
    names = ("generate_original_ir", "compile_and_cache")
    _need([patches.attribute(dsl, name, _within(stall)) for name in names])


def jax(module: ModuleType, stall: Stall, patches: Patches) -> None:
    """XLA's compilation of a JAX function."""
    _need([patches.function(("jax._src.compiler",), "compile_or_get_cached", _within(stall))])


def numba(module: ModuleType, stall: Stall, patches: Patches) -> None:
    """Numba, by its events."""

    events = _Events(stall)

    class Listener(module.Listener):  # type: ignore[misc, name-defined]
        def on_start(self, event: Any) -> None:
            events.start()

        def on_end(self, event: Any) -> None:
            events.end()

    listener = Listener()
    module.register("numba:compile", listener)
    patches.add(lambda: module.unregister("numba:compile", listener))


class _Events:
    """A stall that a library begins and ends by events, which may nest; one thread compiles at a time."""

    def __init__(self, stall: Stall) -> None:
        self._stall = stall
        self._begun: list[bool] = []

    def start(self) -> None:
        self._begun.append(self._stall.begin())

    def end(self) -> None:
        if self._begun and self._begun.pop():
            self._stall.end()


def _within(stall: Stall) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return lambda function: around(function, stall)


def _need(found: list[bool]) -> None:
    if not any(found):
        raise LookupError("this release compiles elsewhere")
