"""Files that a rank leaves beside its segment."""

from __future__ import annotations

import re
from pathlib import Path

_SEGMENT = re.compile(r"(?P<run>.+)\.(?P<rank>\d+)\.[0-9a-f]{8}\.seg")


def torch_record(segment: Path) -> Path | None:
    """Where torch's flight record of a rank that stood still belongs; None for a name that is no segment's.

    Torch's own tool wants the rank at the end of the name, and nothing else of it to differ.
    """
    found = _SEGMENT.fullmatch(segment.name)
    return segment.with_name(f"{found['run']}.torch_fr_{found['rank']}") if found else None
