"""What several parts' tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

from argus.prometheus import BinaryNotFoundError, find_prometheus, find_promtool


@pytest.fixture(scope="session")
def promtool() -> str:
    """Path of promtool; the test is skipped where there is none."""
    try:
        return str(find_promtool())
    except BinaryNotFoundError as error:
        pytest.skip(str(error).splitlines()[0])


@pytest.fixture(scope="session")
def prometheus_binary() -> Path:
    """Path of Prometheus; the test is skipped where there is none."""
    try:
        return find_prometheus()
    except BinaryNotFoundError as error:
        pytest.skip(str(error).splitlines()[0])
