"""The exporter inside a training process, for notebooks and single scripts.

Threads of this process answer scrapes, so they go silent when the process
hangs, and cost it time: use ``argus exporter`` for anything that matters.
"""

from __future__ import annotations

from pathlib import Path

from argus import _native
from argus.exporter.service import Exporter, Options
from argus.exporter.sources import MemorySource
from argus.exporter.web.server import DEFAULT_PORT


def serve(
    port: int = DEFAULT_PORT, *, address: str = "127.0.0.1", web_config: str | Path | None = None
) -> Exporter:
    """Serve this node's ranks, this process's own included, from daemon threads.

    Args:
        port: To listen on; 0 picks a free one, see ``servers[0].url`` of the result.
        address: To listen on; "" for all.
        web_config: TLS and passwords, as ``--web.config.file``.

    Returns:
        The running exporter; ``close()`` stops it.

    Raises:
        AddressError, WebConfigError: It can't be started so; the message says why.
    """
    host = f"[{address}]" if ":" in address else address
    options = Options(addresses=(f"{host}:{port}",), config_file=Path(web_config) if web_config else None)
    return Exporter(options, MemorySource(_native.own_segments))
