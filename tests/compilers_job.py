"""Uses the just-in-time compilers that are installed: ``compilers_job.py NAME…``; prints JSON.

For each: seconds in phase jit_compile of three iterations, which call a function
for the first time, once more, and with another type, and whether ``argus.finish()``
put everything back.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import argus
from stalls_support import enabled, seconds

Case = tuple[list[Callable[[], Any]], Callable[[], Any]]
"""What the three iterations do, and something that a hook would exchange."""


def numba() -> Case:
    import numba.core.event

    @numba.njit
    def half(x: Any) -> Any:
        return x / 2

    @numba.njit
    def twice(x: Any) -> Any:
        return half(x) * 4  # compiled within

    calls = [lambda: twice(3), lambda: twice(4), lambda: twice(3.5)]
    return calls, lambda: dict(numba.core.event._registered)


def jax() -> Case:
    import jax
    from jax import numpy

    total = jax.jit(lambda x: (x @ x).sum())
    inputs = [numpy.ones((4, 4)), numpy.ones((4, 4)), numpy.ones((5, 5))]
    return [lambda x=x: total(x) for x in inputs], lambda: jax._src.compiler.compile_or_get_cached


def triton() -> Case:
    """Without a GPU nothing can be launched, so it is compiled for one, twice."""
    import triton
    from triton import language as tl
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    @triton.jit
    def increase(x, n: tl.constexpr):  # type: ignore[no-untyped-def]
        at = tl.arange(0, n)
        tl.store(x + at, tl.load(x + at) + 1)

    def build(size: int) -> Any:
        source = ASTSource(increase, {"x": "*fp32", "n": "constexpr"}, constexprs={(1,): size})
        return triton.compile(source, target=GPUTarget("cuda", 80, 32))

    put_back = lambda: (triton.compile, triton.runtime.JITFunction._do_compile)  # noqa: E731
    return [lambda: build(128), lambda: None, lambda: build(256)], put_back


def cute() -> Case:
    import cutlass
    from cutlass import cute

    @cute.jit
    def show(number):  # type: ignore[no-untyped-def]
        cute.printf("{}", number)

    calls = [
        lambda: cute.compile(show, cutlass.Int32(1)),
        lambda: None,
        lambda: cute.compile(show, cutlass.Int32(2)),
    ]
    dsl = sys.modules["cutlass.base_dsl.dsl"].BaseDSL
    return calls, lambda: (dsl.compile_and_cache, dsl.generate_original_ir)


def main(names: list[str]) -> None:
    results: dict[str, Any] = {}
    for name in names:
        argus.init(run_id=name, rank=0, world_size=1)
        for _ in range(4):  # a job that has started
            with argus.iteration():
                pass
        calls, hooked = globals()[name]()
        on = hooked()
        for call in calls:
            with argus.iteration():
                call()
        results[name] = {"seconds": seconds("jit_compile")[-3:], "enabled": enabled("stalls")}
        argus.finish()
        results[name]["undone"] = hooked() != on
    print(json.dumps(results))


if __name__ == "__main__":
    main(sys.argv[1:])
