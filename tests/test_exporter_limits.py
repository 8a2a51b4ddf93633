"""Descriptors: never so many segments that no connection can be accepted."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import resource, sys
soft, hard, wanted = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
from argus.exporter.limits import affordable_segments
print(affordable_segments(wanted), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


@pytest.mark.parametrize(
    ("soft", "hard", "expected"),
    [
        (1024, 4096, (1024, 1216)),  # 1,024 segments and 192 descriptors of its own
        (2048, 4096, (1024, 2048)),
        (1024, 1024, (832, 1024)),
        (100, 150, (1, 150)),
    ],
)
def test_what_the_limit_allows(soft: int, hard: int, expected: tuple[int, int]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(soft), str(hard), "1024"],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert tuple(map(int, done.stdout.split())) == expected
