"""ARGUS: names the slow GPU, link or host of a synchronous training job.

In the training program::

    import argus

    argus.init()
    for batch in loader:
        with argus.iteration():
            with argus.phase("forward"):
                ...

For torch, ``argus.torch.attach(model, optimizer, loader)`` does that in one line.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from argus import _absent

if TYPE_CHECKING:
    from argus import torch
    from argus._native import collective, iteration, pause, phase, work
    from argus.stalls.data import data
    from argus.tracer.session import finish, init, status
else:
    try:
        from argus._native import collective, configure, iteration, pause, phase, work

        configure(report=lambda text: import_module("argus.tracer.session").report(text))
        del configure
    except Exception as error:  # a wrong architecture, a half-copied file: training goes on
        from argus._absent import collective, data, finish, init, iteration, pause, phase, status, work

        _absent.explain(error)

__all__ = [
    "__version__",
    "collective",
    "data",
    "finish",
    "init",
    "iteration",
    "pause",
    "phase",
    "status",
    "torch",
    "work",
]

__version__: str


def __getattr__(name: str) -> Any:
    """What costs time to import comes when it is asked for."""
    if name in ("init", "finish", "status"):
        value = _of_session(name)
    elif name == "data":
        value = import_module("argus.stalls.data").data
    elif name == "torch":
        value = import_module("argus.torch")
    elif name == "__version__":
        value = _version()
    else:
        raise AttributeError(f"module 'argus' has no attribute {name!r}")
    globals()[name] = value
    return value


def _of_session(name: str) -> Any:
    try:
        session = import_module("argus.tracer.session")
    except Exception as error:  # a file that is missing, no descriptor left: training goes on
        _absent.explain(error)
        return getattr(_absent, name)
    return getattr(session, name)


def _version() -> str:
    try:
        from argus import _native
    except ImportError:
        from importlib.metadata import version

        return version("argus-gpu")
    return _native.__version__
