"""Small traces of the tests' own making, and where the real ones are."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

CASES = Path(__file__).resolve().parents[2] / "shared" / "cases"
DATA = Path(__file__).parent / "data"

Row = Mapping[str, Any]


def case(name: str) -> Path:
    """A recorded trace of a real job; the test is skipped where it is not."""
    path = CASES / name
    if not path.exists():
        pytest.skip(f"the real trace {name} is not here")
    return path


def row(rank: int, iteration: int, phase: str, start: float, duration: float, **more: Any) -> dict[str, Any]:
    """One occurrence."""
    return {
        "rank": rank,
        "iteration": iteration,
        "phase": phase,
        "start": start,
        "duration": duration,
        **more,
    }


def columns(rows: Sequence[Row]) -> list[str]:
    """Names of all fields, in order of appearance."""
    return list(dict.fromkeys(name for item in rows for name in item))


def csv_text(rows: Sequence[Row]) -> str:
    """As CSV."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns(rows), restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def json_text(rows: Iterable[Row]) -> str:
    """As JSON Lines."""
    return "".join(json.dumps(item) + "\n" for item in rows)


def write_csv(path: Path, rows: Sequence[Row]) -> Path:
    """Write CSV, packed where the name ends in gz."""
    text = csv_text(rows).encode()
    path.write_bytes(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)
    return path
