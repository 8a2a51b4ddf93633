"""Flags that several subcommands have: the same name, and the same meaning, in all of them."""

from __future__ import annotations

import argparse
from pathlib import Path

from argus.segment.files import DEFAULT_BASE


def add_run_id(parser: argparse._ActionsContainer, meaning: str) -> None:
    """``--run-id``: which run; ``--run`` is accepted as well."""
    parser.add_argument("--run-id", "--run", dest="run_id", metavar="RUN_ID", help=meaning)


def add_segments_directory(parser: argparse._ActionsContainer) -> None:
    """``--segments-dir``: where segments are; the exporter's spelling is accepted as well."""
    parser.add_argument(
        "--segments-dir", "--segments.directory", dest="segments", type=Path, metavar="DIR",
        help=f"where this node's ranks leave their segments (default $ARGUS_DIR or {DEFAULT_BASE})",
    )  # fmt: skip
