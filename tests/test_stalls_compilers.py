"""Compilers besides torch's, each the real one, where it is installed; Triton and CuTe seldom are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

JOB = Path(__file__).with_name("compilers_job.py")
COMPILERS = {"numba": "numba", "jax": "jax", "triton": "triton", "cute": "cutlass"}
"""Name and module."""


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What compilers_job.py says of all that are installed."""
    folder = tmp_path_factory.mktemp("compilers")
    environment = {
        **os.environ, "ARGUS_DIR": str(folder), "ARGUS_STALLS": "1", "JAX_PLATFORMS": "cpu",
        "TRITON_CACHE_DIR": str(folder / "triton"), "NUMBA_CACHE_DIR": str(folder / "numba"),
    }  # fmt: skip
    installed = [name for name, module in COMPILERS.items() if find_spec(module)]
    done = subprocess.run(
        [sys.executable, str(JOB), *installed], env=environment, capture_output=True, text=True, timeout=180
    )
    assert done.returncode == 0, done.stderr[-4000:]
    measured: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return measured


@pytest.mark.parametrize("name", COMPILERS)
def test_compilations_are_a_host_phase(name: str, measured: dict[str, Any]) -> None:
    if name not in measured:
        pytest.skip(f"{COMPILERS[name]} is not installed")
    first, again, otherwise = measured[name]["seconds"]
    assert first > 0.001
    assert again == 0
    assert otherwise > 0.001
    assert measured[name]["enabled"] is True
    assert measured[name]["undone"] is True
