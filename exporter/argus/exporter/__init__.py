"""The node exporter, as a command and as a library.

``serve(port=9733)`` runs it inside this process, for notebooks: the same
readers and the same output, this process's own rank included.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from argus.exporter.inprocess import serve as serve

__all__ = ["serve"]


def __getattr__(name: str) -> object:
    if name == "serve":
        from argus.exporter.inprocess import serve

        return serve
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
