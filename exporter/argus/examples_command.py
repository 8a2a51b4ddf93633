"""``argus examples``: write the example configurations that come with ARGUS."""

from __future__ import annotations

import argparse
import re
import sys
from importlib import resources
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's flags."""
    parser.description = (
        "Lists the example configurations (Prometheus, Alertmanager, Grafana, systemd, Kubernetes), prints "
        "one, or writes all of them to a folder, to be changed there. Files that are there already stay."
    )
    parser.epilog = (
        "prometheus.yml reads the rules from the folder rules beside its own: "
        "argus examples --output argus/examples; argus rules --output argus/rules"
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("name", nargs="?", metavar="NAME", help="print this one")
    what.add_argument(
        "-o", "--output", type=Path, metavar="DIR", help="folder to write them to; it is made if missing"
    )


def run(args: argparse.Namespace) -> int:
    """Do it; 0 when done, 2 when there is no such example or the folder can't be written."""
    files = shipped()
    if args.output is not None:
        return _write(files, args.output)
    if args.name is None:
        width = max(map(len, files))
        for name, text in files.items():
            print(f"{name:<{width}}  {_about(text)}")
        return 0
    if args.name not in files:
        print(f"argus examples: there is no {args.name!r}; there are {', '.join(files)}", file=sys.stderr)
        return 2
    sys.stdout.write(files[args.name])
    return 0


def shipped() -> dict[str, str]:
    """The examples as shipped: file name -> text."""
    folder = resources.files("argus") / "examples"
    return dict(sorted((item.name, item.read_text("utf-8")) for item in folder.iterdir()))


def _write(files: dict[str, str], folder: Path) -> int:
    written = 0
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            try:
                with (folder / name).open("x", encoding="utf-8") as file:
                    file.write(text)
            except FileExistsError:
                print(f"argus examples: {folder / name} is there already, and stays", file=sys.stderr)
            else:
                written += 1
    except OSError as error:
        print(f"argus examples: {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    print(f"argus examples: wrote {written} files to {folder}", file=sys.stderr)
    return 0


def _about(text: str) -> str:
    """What the comment in a file's first line begins with."""
    return re.split(r"[.:](?: |$)", re.sub(r"^\W+", "", text.splitlines()[0]))[0]
