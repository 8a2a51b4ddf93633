"""``argus replay``: recorded traces through real segments, read by the real exporter."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from argus.exporter.lifecycle import FileSource
from argus.replay.feed import Feed, anonymous, recorded_world_size
from argus.segment.reader import read
from argus.segment.state import RankState
from argus.traces import Accountant, load
from exporter_support import until
from traces_support import DATA, row, write_csv

MS = 1_000_000


def replayed(path: Path, speed: float = 1.0) -> list[RankState]:
    """States of all ranks after the whole trace, iteration n ending at n seconds."""
    table, _ = load([str(path)])
    with table:
        feed = Feed(table, anonymous, recorded_world_size(table))
        accountant = Accountant(table)
        for number, rows in table:
            feed.feed(accountant.ranks(number, rows), (number + 1) * 1000 * MS, speed)
        now = (table.iterations[-1] + 1) * 1000 * MS
        states = [read(segment.snapshot(), now) for segment in feed.segments]
        feed.close()
    return states


def test_segments_hold_what_was_recorded(tmp_path: Path) -> None:
    rows = []
    for number in range(4):
        for rank in range(2):
            at = number * 0.1
            who = {"role": "encoder", "node": f"n{rank}", "dp": rank}
            group = {"op": "all_reduce", "group": "dp", "group_id": "dp-0", "members": 2, "bytes": 1e6}
            rows += [
                row(rank, number, "forward", at, 0.05, kind="compute", work=8, **who),
                row(rank, number, "all_reduce", at + 0.02, 0.01, kind="communication", **group, **who),
            ]
    first, second = replayed(write_csv(tmp_path / "job.csv", rows))
    identity = second.identity
    assert (identity.run_id, identity.role, identity.rank) == ("job", "encoder", 1)
    assert (identity.node, identity.dp, identity.tp, identity.world_size) == ("n1", 1, -1, 2)
    assert (first.completed, first.last_iteration) == (4, 3)
    # forward without the all_reduce that it holds: 40 ms of four iterations.
    phases = {phase.name: phase for phase in first.phases}
    assert phases["forward"].seconds.sum_ns == 4 * 40 * MS
    assert phases["all_reduce"].seconds.sum_ns == 4 * 10 * MS
    assert first.busy_sum_ns == 4 * 40 * MS
    # Contiguous: 50 ms, and then 100 ms from one end to the next.
    assert first.iteration_sum_ns == (50 + 3 * 100) * MS
    [collective] = first.collectives
    assert (collective.op, collective.group, collective.group_id) == ("all_reduce", "dp", "dp-0")
    assert (collective.members, collective.bytes, collective.completed) == (2, 4_000_000, 4)
    assert collective.seconds.count == 4
    assert [(work.unit, work.phase, work.total) for work in first.work] == [("units", "forward", 32.0)]
    window = first.window()
    assert window is not None
    assert window.iterations == 4
    [(_, values)] = window.collectives
    assert values.bandwidth == pytest.approx(1e6 / 0.01)


def test_speed_divides_what_was_recorded(tmp_path: Path) -> None:
    rows = [row(0, number, "forward", number, 0.8, kind="compute") for number in range(4)]
    [state] = replayed(write_csv(tmp_path / "job.csv", rows), speed=4.0)
    assert state.busy_sum_ns == 4 * 200 * MS


def test_more_phases_than_a_segment_holds_become_other(tmp_path: Path) -> None:
    rows = [row(0, 0, f"phase-{n}", n, 1, kind="compute") for n in range(40)]
    [state] = replayed(write_csv(tmp_path / "job.csv", rows))
    assert len(state.phases) == 33
    assert sum(phase.seconds.sum_ns for phase in state.phases) == 40_000 * MS


def start(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "argus.cli", "replay", *arguments]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def files(base: Path) -> list[Path]:
    return sorted((base / f"argus-{os.getuid()}").glob("*.seg"))


def test_files_are_a_live_job_for_the_exporter_and_end_with_it(tmp_path: Path) -> None:
    process = start("--segments-dir", str(tmp_path), "--speed", "40", "--loop", str(DATA / "healthy.csv.gz"))
    source = FileSource(tmp_path)
    try:

        def windows() -> bool:
            ranks = source.scan(time.monotonic_ns()).ranks
            return len(ranks) == 8 and all(rank.up and rank.state.window() for rank in ranks)

        until(windows)
        first = source.scan(time.monotonic_ns()).ranks[0].state
        assert first.identity.run_id == "healthy"
        # 2.07 s recorded, forty times as fast; the loop goes on beyond the recorded ten.
        window = first.window()
        assert window is not None
        assert window.wall.typical == pytest.approx(2.07 / 40, rel=0.2)
        until(lambda: (source.scan(time.monotonic_ns()).ranks[0].state.last_iteration or 0) > 10)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=10) == 0
        assert files(tmp_path) == []
        assert source.scan(time.monotonic_ns()).ended == {"healthy": 8}
    finally:
        process.kill()
        process.communicate()
        source.close()


def test_it_ends_by_itself(tmp_path: Path) -> None:
    process = start("--segments-dir", str(tmp_path), "--speed", "1000", str(DATA / "healthy.csv.gz"))
    _, said = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "reading" in said
    assert files(tmp_path) == []


def test_it_can_serve_the_metrics_itself() -> None:
    process = start("--listen", "127.0.0.1:0", "--speed", "40", "--loop", "--show-as", "drill",
                    str(DATA / "healthy.csv.gz"))  # fmt: skip
    try:
        assert process.stderr is not None
        url = None
        while url is None:
            line = process.stderr.readline()
            assert line, "it ended before it served"
            found = re.search(r"serving (http://\S+)", line)
            url = found and found[1]

        def page() -> str:
            with urllib.request.urlopen(url.rstrip("/") + "/metrics", timeout=5) as reply:
                return str(reply.read().decode())

        until(lambda: 'argus_window_iterations{run_id="drill",role="pp0",rank="7"}' in page())
    finally:
        process.terminate()
        process.communicate(timeout=10)
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nowhere.parquet"], "nowhere.parquet: No such file"),
        (["--speed", "0", "x"], "not a speed"),
        (["--listen", "nonsense", str(DATA / "healthy.csv.gz")], "nonsense"),
    ],
)
def test_what_it_can_not_do_is_said(arguments: list[str], says: str) -> None:
    process = start(*arguments)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 2
    assert says in said


def test_another_run_of_the_same_name_is_refused(tmp_path: Path) -> None:
    options = ["--segments-dir", str(tmp_path), str(DATA / "healthy.csv.gz")]
    process = start("--loop", *options)
    try:
        until(lambda: len(files(tmp_path)) == 8)
        second = start(*options)
        _, said = second.communicate(timeout=30)
        assert second.returncode == 2
        assert "another process has rank 0 of run 'healthy'" in said
    finally:
        process.terminate()
        process.communicate(timeout=10)
    assert process.returncode == 0
