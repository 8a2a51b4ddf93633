"""The code of docs/recipes.md runs, and gives what the text says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

RECIPES = Path(__file__).parent.parent / "docs" / "recipes.md"

# What a reader's program would have.
BEFORE = """
batches, gradient_bytes = [1, 2, 3, 4, 5], 4
compute = reduce = update = run_experts = attend = transform = lambda *_: None
meet_the_others = train = validate = save = lambda: None
routed_tokens, packs = [[1] * 30, [1] * 10], [[3, 4], [5]]
"""
AFTER = """
import json
from argus._native import monotonic_ns, own_segments
from argus.segment.reader import read
state = read(own_segments()[0].snapshot(), monotonic_ns())
print(json.dumps({
    "iterations": len(state.slots),
    "phases": {phase.name: phase.kind for phase in state.phases},
    "work": {f"{work.phase} {work.unit}": work.total for work in state.work},
    "links": sorted(link.group for link in state.collectives),
}))
"""


def run(heading: str, folder: Path, which: int = 0) -> dict[str, Any]:
    """Run a block under a heading; what the segment holds then."""
    section = RECIPES.read_text("utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    block = re.findall(r"```python\n(.*?)```", section, re.DOTALL)[which]
    program = folder / "recipe.py"
    program.write_text(BEFORE + block + AFTER)
    environment = {**os.environ, "ARGUS_DIR": str(folder), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(program)],
        env=environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "argus" not in done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def test_any_loop(tmp_path: Path) -> None:
    found = run("Any loop", tmp_path)
    assert found["iterations"] == 5
    assert found["phases"] == {
        "data_loading": "host", "forward_backward": "compute", "all_reduce": "communication",
        "optimizer": "compute",
    }  # fmt: skip
    assert found["links"] == ["dp"]


@pytest.mark.skipif(find_spec("jax") is None, reason="jax is not installed")
def test_jax(tmp_path: Path) -> None:
    found = run("JAX", tmp_path)
    assert found["iterations"] == 6
    assert found["phases"] == {"data_loading": "host", "step": "compute"}
    assert found["work"] == {" samples": 96.0}


def test_work_that_differs(tmp_path: Path) -> None:
    experts = run("Work that differs by design", tmp_path)
    assert experts["work"] == {"experts tokens": 40.0}
    packed = run("Work that differs by design", tmp_path, 1)
    assert packed["work"] == {"attention token_pairs": 50.0, "mlp tokens": 12.0}  # 3² + 4² + 5²; 3 + 4 + 5


def test_pauses_are_no_phases(tmp_path: Path) -> None:
    found = run("Validation, checkpoints, waiting for a job's start", tmp_path)
    assert (found["iterations"], found["phases"]) == (1, {"forward": "compute"})
