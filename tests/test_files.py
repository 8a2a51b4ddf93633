"""Finding segments: whose they are, what they are, who is alive."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from argus.segment import files
from argus.segment.sections import MAX_BYTES
from exporter_support import Rank

ROOT = os.geteuid() == 0
SOMEBODY = 54321
needs_root = pytest.mark.skipif(not ROOT, reason="needs root, to act as another user")


def _directory(base: Path, uid: int | None = None) -> Path:
    directory = base / f"argus-{os.getuid() if uid is None else uid}"
    directory.mkdir()
    return directory


def _entry(path: Path, uid: int | None = None) -> files.Entry:
    status = os.lstat(path)
    return files.Entry(path, os.getuid() if uid is None else uid, (status.st_dev, status.st_ino))


def test_finds_directories_by_name_only(tmp_path: Path) -> None:
    for name in (
        f"argus-{os.getuid()}",
        "argus-4242",
        "argus-007",
        "argus--1",
        "argus-x",
        "argus-1000 ",
        "other",
        "argus-1e3",
    ):
        (tmp_path / name).mkdir()
    mine = [(tmp_path / f"argus-{os.getuid()}", os.getuid())]
    own, foreign = files.user_directories(tmp_path)
    assert own == mine
    assert foreign == [str(tmp_path / "argus-4242")]
    assert files.user_directories(tmp_path / "absent") == ([], [])


def test_base_directory_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ARGUS_DIR", str(tmp_path))
    assert files.base_directory() == tmp_path
    monkeypatch.setenv("ARGUS_DIR", "")
    assert files.base_directory() == Path("/dev/shm")


def test_entries_are_segments_by_name(tmp_path: Path) -> None:
    directory = _directory(tmp_path)
    for age, name in enumerate(("a.seg", "c.seg", "b.seg", "a.seg.tmp", "notes.txt")):
        (directory / name).write_bytes(b"x")
        os.utime(directory / name, (1000 - age, 1000 - age))
    os.utime(directory / "b.seg", (1000, 1000))
    names = [entry.path.name for entry in files.entries(directory, os.getuid())]
    assert names == ["a.seg", "b.seg", "c.seg"]  # those last written to first


def test_a_directory_that_is_a_link_or_anothers_is_refused(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    link = tmp_path / f"argus-{os.getuid()}"
    link.symlink_to(real)
    with pytest.raises(files.RefusedError, match="link"):
        files.entries(link, os.getuid())
    with pytest.raises(files.RefusedError, match="not to user 4242; remove it"):
        files.entries(real, 4242)
    plain = tmp_path / "plain"
    plain.write_bytes(b"")
    with pytest.raises(files.RefusedError):
        files.entries(plain, os.getuid())


def test_links_fifos_directories_and_giants_are_refused(tmp_path: Path) -> None:
    directory = _directory(tmp_path)
    secret = tmp_path / "secret"
    secret.write_text("secret")
    link, fifo, folder, giant = (directory / f"{name}.seg" for name in ("link", "fifo", "folder", "giant"))
    link.symlink_to(secret)
    os.mkfifo(fifo)
    folder.mkdir()
    with giant.open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    for path in (link, fifo, folder, giant):
        with pytest.raises(files.RefusedError, match="remove it"):
            files.open_segment(_entry(path))


def test_a_socket_is_refused(tmp_path: Path) -> None:
    import socket

    directory = _directory(tmp_path)
    with socket.socket(socket.AF_UNIX) as server:
        path = directory / "s.seg"
        server.bind(str(path))
        with pytest.raises(files.RefusedError, match="regular file"):
            files.open_segment(_entry(path))


def test_a_name_that_points_elsewhere_by_now_counts_as_gone(tmp_path: Path) -> None:
    directory = _directory(tmp_path)
    path, other = directory / "a.seg", directory / "b.seg"
    path.write_bytes(b"first")
    entry = _entry(path)
    other.write_bytes(b"second")
    other.replace(path)
    with pytest.raises(FileNotFoundError):
        files.open_segment(entry)
    assert files.remove(entry)
    assert path.exists()  # it is another file


@pytest.fixture
def public_path() -> Iterator[Path]:
    """A temporary folder that other users can reach; pytest's own they can't."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield Path(name)


@needs_root
def test_another_users_file_is_refused(tmp_path: Path) -> None:
    directory = _directory(tmp_path)
    path = directory / "a.seg"
    path.write_bytes(b"x")
    os.chown(path, SOMEBODY, SOMEBODY)
    with pytest.raises(files.RefusedError, match=f"belongs to user {SOMEBODY}"):
        files.open_segment(_entry(path))


@needs_root
def test_what_may_not_be_read_says_how_to_mend_it(public_path: Path) -> None:
    directory = _directory(public_path)
    path = directory / "a.seg"
    path.write_bytes(b"x")
    path.chmod(0o600)
    child = os.fork()
    if not child:
        try:
            os.setuid(SOMEBODY)
            files.open_segment(_entry(path, 0))
            os._exit(1)
        except files.UnreadableError as error:
            os._exit(0 if "run the exporter as root" in str(error) else 2)
        finally:
            os._exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_lock_tells_who_is_alive(tmp_path: Path) -> None:
    with Rank(tmp_path) as rank:
        fd = files.open_segment(_entry(rank.path))
        try:
            assert files.is_locked(fd)
            assert not files.is_unlinked(fd)
            rank.kill()
            assert not files.is_locked(fd)
            rank.path.unlink()
            assert files.is_unlinked(fd)
        finally:
            os.close(fd)


@needs_root
@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare, for another PID namespace")
def test_lock_is_visible_from_another_pid_namespace(tmp_path: Path) -> None:
    question = (
        "import os, sys; from argus.segment import files;"
        "print(os.getpid(), files.is_locked(os.open(sys.argv[1], os.O_RDONLY)))"
    )
    with Rank(tmp_path) as rank:
        command = ["unshare", "--pid", "--fork", sys.executable, "-c", question, str(rank.path)]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=60)
        if "Operation not permitted" in answer.stderr:
            pytest.skip("PID namespaces are not permitted here")
        assert answer.stdout.split() == ["1", "True"]
        rank.kill()
        answer = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert answer.stdout.split() == ["1", "False"]
