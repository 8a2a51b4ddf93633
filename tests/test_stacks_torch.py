"""Ranks that are stuck: each named by its category, with the stack that proves it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from argus.stacks.formats import text
from native_support import environment, wait_for
from stacks_support import recording_of, stuck, table_of

pytest.importorskip("torch", reason="torch is not installed (pip install argus-gpu[torch])")

JOB = Path(__file__).with_name("stacks_torch_job.py")


class Job:
    """Both ranks, which write to segments below a directory."""

    def __init__(self, base: Path, stack: ExitStack) -> None:
        settings = environment(base, ARGUS_STACKS="50", CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1")
        self.ranks = []
        for rank in range(2):
            process = subprocess.Popen(
                [sys.executable, str(JOB), str(rank), str(base / "store")],
                env=settings,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            stack.callback(process.communicate)
            stack.callback(process.kill)
            self.ranks.append(process)
        assert [self._line(rank) for rank in range(2)] == ["ready", "ready"]

    def _line(self, rank: int) -> str:
        out = self.ranks[rank].stdout
        assert out is not None
        return out.readline().strip()

    def go_on(self, rank: int) -> None:
        into = self.ranks[rank].stdin
        assert into is not None
        into.write("go\n")
        into.flush()

    def done(self) -> list[str]:
        return [self._line(rank) for rank in range(2)]


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    with ExitStack() as stack:
        yield Job(tmp_path, stack)


def test_ranks_that_are_stuck(job: Job, tmp_path: Path) -> None:
    compiling = stuck(tmp_path, "jit_compile", "never_ready")
    names = " ".join(compiling.functions)
    assert names.index("train") < names.index("torch._dynamo.convert_frame:") < names.index("never_ready")
    # The other rank waits for the first one, and says so.
    waiting = stuck(tmp_path, "training", "train", rank=1)
    assert any(name.startswith("threading:") for name in waiting.functions)

    job.go_on(0)
    loading = stuck(tmp_path, "data_loading", "__getitem__")
    assert any(name.startswith("torch.utils.data.dataloader:") for name in loading.functions)

    job.go_on(0)
    collective = stuck(tmp_path, "collective_wait", "distributed_c10d:all_reduce")
    assert "train" in " ".join(collective.functions)
    shown = text(table_of(tmp_path), "rank 0", 0.02)
    for category in ("jit_compile", "data_loading", "collective_wait"):
        assert f"%  {category}\n" in shown
    samples = recording_of(tmp_path).state.cpu_samples
    assert min(samples[name] for name in ("jit_compile", "data_loading", "collective_wait")) >= 10

    job.go_on(1)
    assert job.done() == ["done", "done"]
    wait_for(lambda: all(process.poll() == 0 for process in job.ranks), "a clean end")
