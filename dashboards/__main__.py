"""Write the dashboards and their documentation: ``python -m dashboards``."""

from __future__ import annotations

from pathlib import Path

from dashboards import communication, fleet, hardware, itself, rank, run
from dashboards.document import document
from dashboards.factory import write

HERE = Path(__file__).parent
FOLDER = "dashboards/json"


def files() -> dict[str, str]:
    """Path -> text of all that is generated; paths are relative to the repository."""
    pages = write(module.page() for module in (fleet, run, rank, communication, hardware, itself))
    texts = {f"{FOLDER}/{name}": text for name, text in pages.items()}
    return {**texts, "docs/panels.md": document(pages)}


def main(root: Path = HERE.parent) -> None:
    """Write them all, and remove dashboards that are not generated any more."""
    texts = files()
    for old in (root / FOLDER).glob("*.json"):
        if f"{FOLDER}/{old.name}" not in texts:
            old.unlink()
    for path, text in texts.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
