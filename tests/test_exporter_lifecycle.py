"""Ranks as they come, die, end, return and pretend."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from argus import _native, catalogue
from argus.exporter import lifecycle
from argus.exporter.ended import EndedRanks
from argus.exporter.lifecycle import FileSource
from argus.exporter.registry import Registry
from argus.exporter.sources import MemorySource, Scan, merge
from argus.segment import files
from argus.segment.reader import read
from argus.segment.state import RankKey, RankState
from exporter_support import Rank, segment, series, until

SECOND = 1_000_000_000
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to act as another user")


@pytest.fixture
def source(tmp_path: Path) -> Iterator[FileSource]:
    source = FileSource(tmp_path)
    yield source
    source.close()


def _ranks(scan: Scan) -> dict[tuple[str, int], bool]:
    return {(rank.state.identity.run_id, rank.state.identity.rank): rank.up for rank in scan.ranks}


def _now(after_s: float = 0) -> int:
    return _native.monotonic_ns() + round(after_s * SECOND)


def test_two_runs_on_one_node(tmp_path: Path, source: FileSource) -> None:
    with Rank(tmp_path, "a", 0), Rank(tmp_path, "b", 0), Rank(tmp_path, "b", 1):
        scan = source.scan(_now())
        assert _ranks(scan) == {("a", 0): True, ("b", 0): True, ("b", 1): True}
        assert scan.segments == {"alive": 3, "down": 0, "incompatible": 0, "unreadable": 0, "refused": 0}


def test_a_killed_rank_is_announced_for_ten_minutes_and_its_file_removed(
    tmp_path: Path, source: FileSource
) -> None:
    with Rank(tmp_path, world_size=2, node="n1") as rank:
        assert _ranks(source.scan(_now())) == {("run", 0): True}
        rank.kill()
        registry = Registry(source)
        names = {family.metric.name for family in registry.collect(_now())}
        assert names == {"argus_rank_info", "argus_rank_up", "argus_world_size", "argus_attempt"}
        assert _ranks(source.scan(_now(599))) == {("run", 0): False}
        assert rank.path.exists()
        assert _ranks(source.scan(_now(601))) == {}
        assert not rank.path.exists()


def test_a_clean_end_is_counted_and_removes_the_rank_at_once(tmp_path: Path, source: FileSource) -> None:
    with Rank(tmp_path, "run", 0) as rank, Rank(tmp_path, "run", 1) as other:
        source.scan(_now())
        rank.tell("ended")
        assert not rank.path.exists()
        scan = source.scan(_now())
        assert _ranks(scan) == {("run", 1): True}
        assert scan.ended == {"run": 1}
        # The count lasts as long as the run has ranks here, and ten minutes more.
        assert source.scan(_now(3600)).ended == {"run": 1}
        other.tell("ended")
        assert source.scan(_now(3601)).ended == {"run": 2}
        assert source.scan(_now(4200)).ended == {"run": 2}
        assert source.scan(_now(4202)).ended == {}


def test_a_rank_that_came_and_went_between_two_scrapes_counts(tmp_path: Path, source: FileSource) -> None:
    with Rank(tmp_path) as rank:
        source.discover()
        rank.tell("ended")
        scan = source.scan(_now())
        assert (_ranks(scan), scan.ended) == ({}, {"run": 1})


def test_an_uncaught_exception_is_down_even_while_the_process_lives(
    tmp_path: Path, source: FileSource
) -> None:
    with Rank(tmp_path) as rank:
        source.scan(_now())
        rank.tell("failed")
        scan = source.scan(_now())
        assert (_ranks(scan), scan.ended) == ({("run", 0): False}, {})


def test_a_rank_that_returns_replaces_its_dead_self_for_good(tmp_path: Path, source: FileSource) -> None:
    with Rank(tmp_path, attempt=0) as first:
        source.scan(_now())
        first.kill()
        assert _ranks(source.scan(_now())) == {("run", 0): False}
        with Rank(tmp_path, attempt=1) as second:
            [rank] = source.scan(_now()).ranks
            assert (rank.up, rank.state.identity.attempt) == (True, 1)
            second.tell("ended")
            scan = source.scan(_now())
            assert (_ranks(scan), scan.ended) == ({}, {"run": 1})  # the dead one does not come back
        with Rank(tmp_path, attempt=2):
            scan = source.scan(_now())
            assert (_ranks(scan), scan.ended) == ({("run", 0): True}, {})  # it has not ended after all


def test_a_rank_that_returns_and_ends_between_two_scrapes(tmp_path: Path, source: FileSource) -> None:
    with Rank(tmp_path) as first:
        source.scan(_now())
        first.kill()
        source.scan(_now())
        with Rank(tmp_path) as second:
            source.discover()
            second.tell("ended")
        scan = source.scan(_now())
        assert (_ranks(scan), scan.ended) == ({}, {"run": 1})


def test_all_ranks_gone_at_once(tmp_path: Path, source: FileSource) -> None:
    with Rank(tmp_path, "run", 0) as first, Rank(tmp_path, "run", 1) as second:
        source.scan(_now())
        first.kill()
        second.kill()
        assert _ranks(source.scan(_now())) == {("run", 0): False, ("run", 1): False}


def test_a_restarted_exporter_announces_the_freshly_dead_only(tmp_path: Path) -> None:
    with Rank(tmp_path) as rank:
        rank.kill()
        fresh = FileSource(tmp_path)
        assert _ranks(fresh.scan(_now())) == {("run", 0): False}
        fresh.close()
        late = FileSource(tmp_path)
        assert _ranks(late.scan(_now(700))) == {}
        assert not rank.path.exists()
        late.close()


def test_a_segment_of_an_earlier_boot_is_not_announced(tmp_path: Path, source: FileSource) -> None:
    with Rank(tmp_path) as rank:
        rank.kill()
        assert _ranks(source.scan(SECOND)) == {}  # the clock is before all that the segment tells


def test_an_unlinked_segment_of_a_living_rank_is_still_read(tmp_path: Path, source: FileSource) -> None:
    with Rank(tmp_path) as rank:
        source.scan(_now())
        rank.path.unlink()
        assert _ranks(source.scan(_now())) == {("run", 0): True}
        rank.kill()
        assert _ranks(source.scan(_now())) == {("run", 0): False}


def test_duplicates_give_one_rank_the_newest_incarnation(tmp_path: Path, source: FileSource) -> None:
    with Rank(tmp_path, "run", 0, attempt=0) as first:
        copy = first.path.with_name("copy.seg")
        with Rank(tmp_path, "run", 0, attempt=5, role="pp1") as second:
            second.tell("role pp0")  # two living segments of one rank
            copy.write_bytes(first.path.read_bytes())  # and a dead copy
            [rank] = source.scan(_now()).ranks
            assert (rank.up, rank.state.identity.attempt) == (True, 5)


def test_damaged_segments_do_not_disturb_the_others(
    tmp_path: Path, source: FileSource, caplog: pytest.LogCaptureFixture
) -> None:
    with Rank(tmp_path, "good", 0) as good, Rank(tmp_path, "bad", 0) as bad:
        directory = good.path.parent
        content = good.path.read_bytes()
        (directory / "empty.seg").write_bytes(b"")
        (directory / "short.seg").write_bytes(content[:1000])
        future = bytearray(content)
        future[8] = 7
        (directory / "future.seg").write_bytes(future)
        (directory / "link.seg").symlink_to("/etc/passwd")
        os.mkfifo(directory / "fifo.seg")
        with (directory / "giant.seg").open("wb") as file:
            file.truncate(1 << 40)
        (tmp_path / "argus-4242").mkdir()
        with bad.path.open("r+b") as file:
            file.write(b"garbage!")
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                scan = source.scan(_now())
        assert _ranks(scan) == {("good", 0): True}
        refused = 4 if os.getuid() != 4242 else 3
        assert scan.segments == {
            "alive": 1, "down": 0, "incompatible": 1, "unreadable": 3, "refused": refused
        }  # fmt: skip
        assert len(caplog.messages) == len(set(caplog.messages)) == 4 + refused
        assert any("upgrade the exporter" in message for message in caplog.messages)


def test_a_segment_corrupted_or_replaced_while_it_is_read(tmp_path: Path, source: FileSource) -> None:
    with Rank(tmp_path, "a", 0) as rank, Rank(tmp_path, "b", 0):
        assert len(source.scan(_now()).ranks) == 2
        os.truncate(rank.path, 5000)
        scan = source.scan(_now())
        assert (_ranks(scan), scan.segments["unreadable"]) == ({("b", 0): True}, 1)
        rank.path.unlink()
        rank.path.symlink_to("/etc/passwd")
        scan = source.scan(_now())
        assert (_ranks(scan), scan.segments["refused"]) == ({("b", 0): True}, 1)


def test_hundreds_of_junk_files_cost_little_and_are_capped(tmp_path: Path) -> None:
    source = FileSource(tmp_path, per_user=20, total=1000)
    with Rank(tmp_path, "a", 0) as rank:
        for number in range(600):
            junk = rank.path.parent / f"junk{number:03}.seg"
            junk.write_bytes(b"junk" * 500)
            os.utime(junk, (1000, 1000))
        scan = source.scan(_now())
        assert _ranks(scan) == {("a", 0): True}
        assert scan.segments["unreadable"] == 19
        assert scan.segments["refused"] == 581
        # Later the junk is let go of and makes room, and is not opened again.
        scan = source.scan(_now(700))
        assert _ranks(scan) == {("a", 0): True}
    source.close()


@needs_root
def test_another_user_can_not_displace_or_impersonate_a_rank(tmp_path: Path, source: FileSource) -> None:
    with Rank(tmp_path, "run", 0, attempt=1) as rank:
        source.scan(_now())
        stranger = 54321
        theirs = tmp_path / f"argus-{stranger}"
        theirs.mkdir()
        os.chown(theirs, stranger, stranger)
        forged = theirs / "run.0.seg"
        forged.write_bytes(rank.path.read_bytes())
        os.chown(forged, stranger, stranger)
        # A copy with a later incarnation, locked by the stranger.
        patched = bytearray(forged.read_bytes())
        offset = _native.layout()["structs"]["header"]["fields"]["incarnation"][0]
        patched[offset : offset + 8] = (2**63).to_bytes(8, sys.byteorder)
        forged.write_bytes(patched)
        code = (
            "import fcntl, os, sys\n"
            "fd = os.open(sys.argv[1], os.O_RDWR); os.setuid(54321)\n"
            "fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB); print('locked', flush=True); sys.stdin.read()"
        )
        with subprocess.Popen(
            [sys.executable, "-c", code, str(forged)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"locked\n"
            scan = source.scan(_now())
            assert [rank.state.incarnation_ns < 2**63 for rank in scan.ranks] == [True]
            # Their file in our directory, and ours in theirs, are refused.
            os.chown(forged, 0, 0)
        other = rank.path.with_name("foreign.seg")
        other.write_bytes(b"x" * 1000)
        os.chown(other, stranger, stranger)
        assert source.scan(_now()).segments["refused"] == 1


def test_scrapes_while_ranks_come_and_go(tmp_path: Path, source: FileSource) -> None:
    registry = Registry(source, version="test")
    stop = threading.Event()
    problems: list[BaseException] = []

    def scrape() -> None:
        try:
            while not stop.is_set():
                families = registry.collect()
                values = series(families)
                assert values["argus_exporter_collector_success", ("segments",)] == 1
                for family in families:
                    labels = [labels for labels, _ in family.series]
                    assert len(labels) == len(set(labels))
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=scrape) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(6):
        with Rank(tmp_path, f"run{number}", 0) as first, Rank(tmp_path, "run", 0) as second:
            first.tell("hammer")
            os.kill(second.process.pid, signal.SIGKILL)
            until(lambda: (f"run{number}", 0) in _ranks(source.scan(_now())))  # noqa: B023
    stop.set()
    for thread in threads:
        thread.join()
    assert not problems


def test_ended_ranks_are_bounded_by_run() -> None:
    ended = EndedRanks(retention_ns=600)
    for number in range(1000):
        ended.add(RankKey(f"run{number}", "pp0", 0), number)
    counts = ended.counts(set(), 1000)
    assert len(counts) == 256
    assert counts["run999"] == 1


def test_merge_prefers_the_living_and_the_first() -> None:
    def memory(attempt: int, state: str | None = None) -> Scan:
        rank = segment(attempt=attempt)
        scan = MemorySource([rank]).scan(_now())
        if state:
            scan.ranks = [item._replace(up=False) for item in scan.ranks]
        return scan

    def attempt(*scans: Scan) -> int:
        [rank] = merge(scans).ranks
        return rank.state.identity.attempt

    assert attempt(memory(1), memory(2)) == 1
    assert attempt(memory(1, "down"), memory(2)) == 2
    assert attempt(memory(1), memory(2, "down")) == 1


def test_own_segments_are_never_opened(tmp_path: Path) -> None:
    directory = tmp_path / f"argus-{os.getuid()}"
    directory.mkdir()
    own = _native.Segment(str(directory / "run.0.seg"), run_id="run", rank=0)
    try:
        source = FileSource(tmp_path, own=lambda: {own.inode} if own.inode else set())
        assert source.scan(_now()).ranks == []
        source.close()
        question = (
            "import os, sys; from argus.segment import files; print(files.is_locked(os.open(sys.argv[1], 0)))"
        )
        answer = subprocess.run(
            [sys.executable, "-c", question, str(own.path)], capture_output=True, text=True, timeout=60
        )
        assert answer.stdout == "True\n"
    finally:
        own.close("ended")


def test_the_dead_say_nothing_but_who_they_were(tmp_path: Path, source: FileSource) -> None:
    with Rank(tmp_path, node="n1", local_rank=3) as rank:
        source.scan(_now())
        rank.kill()
        values = series(Registry(source).collect(_now()))
        assert values["argus_rank_up", ("run", "pp0", "0")] == 0
        info = next(labels for name, labels in values if name == "argus_rank_info")
        assert dict(zip(catalogue.RANK_INFO.labels, info, strict=True)) == {
            "run_id": "run", "role": "pp0", "rank": "0", "node": "n1", "local_rank": "3", "gpu_uuid": "",
            "pci_bus_id": "", "dp": "", "tp": "", "pp": "", "cp": "", "ep": "",
        }  # fmt: skip


def test_file_names_can_not_write_into_the_log(
    tmp_path: Path, source: FileSource, caplog: pytest.LogCaptureFixture
) -> None:
    directory = tmp_path / f"argus-{os.getuid()}"
    directory.mkdir()
    (directory / "a\nERROR all is lost\x1b[31m.seg").symlink_to("/etc/passwd")
    (directory / os.fsdecode(b"\xff\xfe.seg")).write_bytes(b"junk")
    source.scan(_now())
    assert len(caplog.messages) == 2
    assert all(message.isprintable() for message in caplog.messages)


def test_a_scrape_after_closing_opens_nothing(tmp_path: Path) -> None:
    source = FileSource(tmp_path)
    with Rank(tmp_path):
        assert source.scan(_now()).ranks
        before = len(os.listdir("/proc/self/fd"))
        source.close()
        assert source.scan(_now()).ranks == []
        assert len(os.listdir("/proc/self/fd")) == before - 1


def test_the_living_need_no_room_of_the_dead(tmp_path: Path) -> None:
    """A user whose jobs crash again and again still sees the one that runs."""
    source = FileSource(tmp_path, per_user=3, total=100)
    try:
        for attempt in range(4):
            with Rank(tmp_path, f"crashed{attempt}"):
                source.scan(_now())
            with Rank(tmp_path, f"crashed{attempt}", 1):
                source.scan(_now())
        with Rank(tmp_path, "runs") as first, Rank(tmp_path, "runs", 1), Rank(tmp_path, "runs", 2):
            assert _ranks(source.scan(_now())) == {("runs", 0): True, ("runs", 1): True, ("runs", 2): True}
            with Rank(tmp_path, "runs", 3):  # nobody is dead: no room
                scan = source.scan(_now())
                assert len(scan.ranks) == 3
                assert scan.segments["refused"] >= 1
            first.kill()
            source.scan(_now())
            assert _ranks(source.scan(_now()))[("runs", 0)] is False  # the dead have no room of the dead
    finally:
        source.close()


def test_whatever_the_reader_raises_costs_one_rank_only(
    tmp_path: Path, source: FileSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(snapshot: bytes, now_ns: int) -> RankState:
        state = read(snapshot, now_ns)
        if state.identity.rank == 1:
            raise IndexError("a flaw that nobody knows")
        return state

    monkeypatch.setattr(lifecycle, "read", broken)
    with Rank(tmp_path), Rank(tmp_path, rank=1), Rank(tmp_path, rank=2):
        scan = source.scan(_now())
    assert _ranks(scan) == {("run", 0): True, ("run", 2): True}
    assert (scan.segments["alive"], scan.segments["unreadable"]) == (2, 1)


def test_a_dead_segment_is_not_removed_through_a_link(tmp_path: Path, source: FileSource) -> None:
    """Its user may put a link to another directory in the place of their own."""
    with Rank(tmp_path) as rank:
        source.scan(_now())
        moved = rank.path.parent.rename(tmp_path / "moved")
        rank.path.parent.symlink_to(moved)
    source.scan(_now())
    assert source.scan(_now(700)).ranks == []
    assert (moved / rank.path.name).exists()


def test_thousands_of_names_cost_others_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No more of one user's files are opened than a few per place, and the log stays short."""
    opened = 0
    open_segment = files.open_segment

    def counting(entry: files.Entry) -> int:
        nonlocal opened
        opened += 1
        return open_segment(entry)

    monkeypatch.setattr(files, "open_segment", counting)
    source = FileSource(tmp_path, per_user=20, total=1000)
    with Rank(tmp_path) as rank:
        for number in range(1500):
            junk = rank.path.parent / f"junk{number:04}.seg"
            junk.touch()
            os.utime(junk, (1000, 1000))
            (tmp_path / f"argus-{100_000 + number}").mkdir()
        for _ in range(3):
            opened = 0
            scan = source.scan(_now())
            assert _ranks(scan) == {("run", 0): True}
            assert opened <= 20 + 21
        with Rank(tmp_path, rank=1):  # it has been written to last
            assert _ranks(source.scan(_now())) == {("run", 0): True, ("run", 1): True}
        assert scan.segments["refused"] == 1500 - 19 + 1500
    source.close()
    assert len(caplog.records) <= 2 * 64 + 1
