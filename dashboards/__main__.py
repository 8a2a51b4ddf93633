"""Write the dashboards: ``python -m dashboards [FOLDER]``."""

from __future__ import annotations

import sys
from pathlib import Path

from dashboards import communication, fleet, hardware, itself, rank, run
from dashboards.factory import write

FOLDER = Path(__file__).parent / "json"


def pages() -> dict[str, str]:
    """File name -> text of every dashboard."""
    return write(module.page() for module in (fleet, run, rank, communication, hardware, itself))


def main(folder: Path = FOLDER) -> None:
    """Write them all, and remove what is not generated any more."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = pages()
    for old in folder.glob("argus-*.json"):
        if old.name not in texts:
            old.unlink()
    for name, text in texts.items():
        (folder / name).write_text(text, "utf-8")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
