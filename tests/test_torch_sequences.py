"""How the numbers of torch's flight recorder are read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed (pip install argus-gpu[torch])")

from torch import distributed  # noqa: E402

from argus.torch.collectives import Collectives  # noqa: E402
from argus.torch.sequences import GLOO, FlightRecorders  # noqa: E402

if not hasattr(torch._C._distributed_c10d, GLOO):
    pytest.skip("this torch has no flight recorder of Gloo", allow_module_level=True)


def test_entries_are_not_read_every_second_for_a_group_without_a_name(tmp_path: Path) -> None:
    """A group of one rank is no communicator, however often its number is seen; all entries take 50 ms."""
    store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        distributed.all_reduce(torch.ones(1))
        recorders = FlightRecorders(Collectives())
        asked: list[bool] = []

        def counting(dump: Callable[[bool, bool], str]) -> Callable[[bool, bool], str]:
            def counted(entries: bool, active: bool) -> str:
                asked.append(entries)
                return dump(entries, active)

            return counted

        recorders._dumps = [(name, counting(dump)) for name, dump in recorders._dumps if name == GLOO]
        assert all(recorders.numbers(set()) == {} for _ in range(100))
    finally:
        distributed.destroy_process_group()
    assert asked.count(False) == 100
    # At first, then after 1, 2, 4, 8 and 16 looks more.
    assert asked.count(True) == 6
