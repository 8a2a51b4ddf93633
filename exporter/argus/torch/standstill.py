"""The flight record of a rank that stands still: torch's own, where its tools find it.

Written once per standstill into the folder of the segment, as
``<run>.torch_fr_<rank>``, in the form that ``torchfrtrace`` reads, which
compares the ranks' last collectives.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from time import monotonic

from torch import _C

from argus._native import Segment
from argus._native import status as counts
from argus.segment.beside import torch_record

_log = logging.getLogger("argus.torch")

AFTER_S = 100.0
"""Less than the least age at which a run counts as hung (rules/argus-liveness.yml), so that the
record is there when the exporter looks."""
_MOST_BYTES = 32 << 20


class Standstill:
    """Watches whether anything moves.

    Args:
        after_s: Seconds without a collective or a phase until the record is written.
    """

    def __init__(self, after_s: float = AFTER_S) -> None:
        self._after = after_s
        self._seen: tuple[int, int] = (0, 0)
        self._since = monotonic()
        self._written = False

    def look(self, segment: Segment, enqueued: int) -> None:
        """Take note of the operations enqueued so far; write when the time has come."""
        seen = (enqueued, int(counts().get("iterations", 0)))
        if seen != self._seen:
            self._seen, self._since, self._written = seen, monotonic(), False
        elif enqueued and not self._written and monotonic() - self._since > self._after:
            self._written = True
            path = torch_record(Path(segment.path or ""))
            if path is not None:
                write_record(path)


def write_record(path: Path) -> None:
    """Write torch's flight record; where it can't, one line says why."""
    c10d = _C._distributed_c10d
    dump = getattr(c10d, "_dump_nccl_trace", None) or getattr(c10d, "_dump_fr_trace", None)
    if dump is None:
        return
    temporary = path.with_name(f"{path.name}.tmp")
    try:
        record = dump(True, True, False)
        if len(record) > _MOST_BYTES:
            raise OSError(f"{len(record)} bytes are too many")
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o640)
        with open(descriptor, "wb") as file:
            file.write(record)
        os.replace(temporary, path)
    except OSError as error:
        _log.warning("argus: torch's flight record of the hang is not written: %s", error)
    else:
        _log.warning("argus: no collective for a while; torch's flight record is in %s", path)
