"""What several parts' tests share."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from argus.prometheus import BinaryNotFoundError, find_prometheus, find_promtool
from nvtx_support import build_caller

# A shell's background job starts with SIGINT ignored, and the commands under test would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Garbage is collected whenever it is: tests of other things count phases, and must not meet it.
os.environ.setdefault("ARGUS_STALLS", "0")


@pytest.fixture(scope="session")
def promtool() -> str:
    """Path of promtool; the test is skipped where there is none."""
    try:
        return str(find_promtool())
    except BinaryNotFoundError as error:
        pytest.skip(str(error).splitlines()[0])


@pytest.fixture(scope="session")
def prometheus_binary() -> Path:
    """Path of the system's Prometheus; the test is skipped where there is none."""
    try:
        return find_prometheus()
    except BinaryNotFoundError as error:
        pytest.skip(str(error).splitlines()[0])


def _prometheus_versions() -> list[Path | None]:
    """The system's Prometheus (None) and the further versions that were fetched, if any."""
    root = Path(__file__).parent.parent
    folder = Path(os.environ.get("ARGUS_PROMETHEUS_VERSIONS", root / "build" / "prometheus"))
    return [None, *sorted(folder.glob("*/prometheus"))]


@pytest.fixture(
    scope="session", params=_prometheus_versions(), ids=lambda path: path.parent.name if path else "system"
)
def each_prometheus(request: pytest.FixtureRequest) -> Path:
    """Path of one Prometheus after the other, promtool beside it; skipped where there is none."""
    if request.param is not None:
        return Path(request.param)
    try:
        return find_prometheus()
    except BinaryNotFoundError as error:
        pytest.skip(str(error).splitlines()[0])


@pytest.fixture(scope="session")
def nvtx_caller(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Library of ``nvtx_caller.c``; the test is skipped where there are no NVTX headers."""
    return build_caller(tmp_path_factory.mktemp("nvtx") / "libcaller.so", "-shared", "-fPIC")
