"""Snapshots of the flight recorder: POST /alerts, who is kept, and the directory that holds them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from argus import catalogue
from argus.exporter.flight.alerts import MAX_BYTES, Accusation, PayloadError, accusations
from argus.exporter.flight.receiver import Receiver, peers
from argus.exporter.flight.store import Store, default_directory
from argus.exporter.lifecycle import FileSource
from flight_support import ask, delivery, exporter, four_ranks, snapshots
from perfetto_support import decode


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with four_ranks(tmp_path_factory.mktemp("segments")) as directory:
        yield directory


# ---- /alerts ----


def test_an_alert_leads_to_a_snapshot_of_the_accused_and_two_peers(base: Path, tmp_path: Path) -> None:
    with exporter(base, tmp_path) as running:
        status, body, _ = ask(running, "/alerts", delivery(("ArgusComputeStraggler", "run", "2")))
        assert status == 200, body
        (path,) = snapshots(tmp_path)
        assert path.name in body.decode()
        assert path.name.endswith("Z_ArgusComputeStraggler_run_r2.pftrace.gz")
        assert path.stat().st_mode & 0o777 == 0o640
        shown = decode(path.read_bytes())
        # Of the three that are well, the two that work most like their median.
        names = [name for name in shown if name != "rank 2 (pp0, node-a)"]
        assert len(names) == 2
        assert len(shown) == 3

        listing = ask(running, "/snapshots")[1].decode()
        assert f'href="/snapshots/{path.name}"' in listing
        status, content, headers = ask(
            running, f"/snapshots/{path.name}", headers={"Accept-Encoding": "gzip"}
        )
        assert (status, content, "Content-Encoding" in headers) == (200, path.read_bytes(), False)
        metrics = ask(running, "/metrics")[1].decode()
        assert 'argus_exporter_snapshots_total{outcome="written"} 1' in metrics
        assert "\nargus_exporter_snapshots 1" in metrics
        assert f"\nargus_exporter_snapshots_bytes {len(content)}" in metrics

        again = ask(running, "/alerts", delivery(("ArgusComputeStraggler", "run", "2")))
        assert (again[0], b"no snapshot, the last is less than 600 s old" in again[1]) == (200, True)
        assert len(snapshots(tmp_path)) == 1
        other = ask(
            running, "/alerts", delivery(("ArgusHangSuspect", "run", "2"), ("ArgusHangSuspect", "run", "1"))
        )
        assert b"_r1.2.pftrace.gz" in other[1]
        metrics = ask(running, "/metrics")[1].decode()
        assert 'outcome="limited"} 1' in metrics


def test_alerts_that_are_not_about_this_node_do_nothing(base: Path, tmp_path: Path) -> None:
    with exporter(base, tmp_path) as running:
        for body in (
            delivery(("ArgusComputeStraggler", "run", "77")),
            delivery(("ArgusComputeStraggler", "another", "2")),
            delivery(("ArgusComputeStraggler", "run", "2"), status="resolved"),
            b'{"alerts": [{"status": "firing", "labels": {"alertname": "ArgusRunHung", "run_id": "run"}}]}',
            b'{"alerts": []}',
        ):
            status, said, _ = ask(running, "/alerts", body)
            assert (status, said) == (200, b"no firing alert names a rank of this node\n")
    assert snapshots(tmp_path) == []


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"", {}, 400),
        (b"{", {}, 400),
        (b"[" * 200_000, {}, 400),
        (b"[]", {}, 400),
        (b'{"alerts": 7}', {}, 400),
        (b"\xff\xfe", {}, 400),
        (b'{"alerts": []}', {"Content-Type": "text/plain"}, 415),
        (b"", {"Content-Length": str(MAX_BYTES + 1)}, 413),
        (b"", {"Content-Length": "9" * 40}, 413),
        (b"", {"Content-Length": "-1"}, 411),
        (b"", {"Transfer-Encoding": "chunked"}, 411),
    ],
)
def test_hostile_deliveries(tmp_path: Path, body: bytes, headers: dict[str, str], status: int) -> None:
    with exporter(tmp_path, tmp_path) as running:
        assert ask(running, "/alerts", body, headers)[0] == status
        assert ask(running, "/-/healthy")[0] == 200


def test_odd_alerts_are_passed_over() -> None:
    good = {"status": "firing", "labels": {"alertname": "A", "run_id": "r", "rank": "3"}}
    odd: list[Any] = [
        7, None, {}, {"labels": 3}, {"labels": {}}, {"labels": {**good["labels"], "rank": 3}},  # type: ignore[dict-item]
        {"labels": {**good["labels"], "rank": "-1"}}, {"labels": {**good["labels"], "rank": "9" * 30}},  # type: ignore[dict-item]
        {"labels": {**good["labels"], "alertname": ["A"]}},  # type: ignore[dict-item]
    ]  # fmt: skip
    assert accusations(json.dumps({"alerts": [*odd, good, good]}).encode()) == [Accusation("A", "r", 3)]
    with pytest.raises(PayloadError):
        accusations(b'"alerts"')


def test_an_alerts_name_is_one_line_of_text() -> None:
    labels = {"alertname": "A\n\x1b[31m\ud800", "run_id": "r", "rank": "3"}
    (found,) = accusations(json.dumps({"alerts": [{"labels": labels}]}).encode())
    assert found.alert == "A\ufffd\ufffd[31m\ufffd"


def test_no_more_than_a_few_snapshots_whatever_comes(base: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "snapshots", most=50, most_bytes=1 << 30)
    with closing(FileSource(base)) as source:
        receiver = Receiver([source], store, 600.0)
        for number in range(20):
            receiver.deliver(delivery((f"Alert{number}", "run", "2")))
        counts = {
            labels[0]: value for metric, labels, value in receiver.points() if metric is catalogue.SNAPSHOTS
        }
    assert counts == {"written": 6, "limited": 14, "failed": 0}
    assert len(snapshots(tmp_path)) == 6


def test_a_directory_that_cannot_be_written(base: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with closing(FileSource(base)) as source:
        receiver = Receiver([source], Store(tmp_path / "file" / "snapshots", 5, 1 << 30), 600.0)
        (said,) = receiver.deliver(delivery(("Alert", "run", "2")))
        assert "no snapshot: [Errno" in said
        counts = {
            labels[0]: value for metric, labels, value in receiver.points() if metric is catalogue.SNAPSHOTS
        }
    assert counts["failed"] == 1


def test_names_from_alerts_are_harmless(base: Path, tmp_path: Path) -> None:
    with closing(FileSource(base)) as source:
        receiver = Receiver([source], Store(tmp_path / "snapshots", 5, 1 << 30), 600.0)
        receiver.deliver(delivery(("../../etc/passwd_<b>\u202e", "run", "2")))
    (path,) = snapshots(tmp_path)
    assert path.name.endswith("Z_..-..-etc-passwd--b--_run_r2.pftrace.gz")


# ---- the directory ----


def test_number_and_size_are_bounded_and_the_oldest_go(tmp_path: Path) -> None:
    store = Store(tmp_path, most=3, most_bytes=1 << 20)
    names = [store.add(f"A{number}", "run", [number], [b"x"]) for number in range(6)]
    assert [each.name for each in store.kept()] == sorted(names[-3:], reverse=True)
    noise = os.urandom(400_000)
    for number in range(4):
        last = store.add("Big", "run", [number], [noise])
    kept = store.kept()
    assert sum(each.bytes for each in kept) <= 1 << 20
    assert kept[0].name == last or last in {each.name for each in kept}
    with pytest.raises(OSError, match="larger than"):
        store.add("Huge", "run", [0], [os.urandom(1 << 20)] * 3)
    assert all(path.suffix == ".gz" for path in tmp_path.iterdir())


def test_what_is_not_a_snapshot_is_neither_shown_nor_removed(tmp_path: Path) -> None:
    store = Store(tmp_path, most=1, most_bytes=1 << 20)
    (tmp_path / "keep.txt").write_text("mine")
    (tmp_path / "20250101T000000Z_A_run_r0.pftrace.gz").symlink_to("/etc/passwd")
    (tmp_path / "20250101T000000Z_mine.pftrace.gz").write_text("of a person")
    os.mkfifo(tmp_path / "20250102T000000Z_A_run_r0.pftrace.gz")
    (tmp_path / ".20250101T000000Z_A_run_r0.pftrace.gz.77.tmp").write_text("left by a killed exporter")
    name = store.add("A", "run", [0], [b"x"])
    assert [each.name for each in store.kept()] == [name]
    assert {path.name for path in tmp_path.iterdir()} == {
        "keep.txt", "20250101T000000Z_A_run_r0.pftrace.gz", "20250102T000000Z_A_run_r0.pftrace.gz",
        "20250101T000000Z_mine.pftrace.gz", name,
    }  # fmt: skip
    others = [path.name for path in tmp_path.iterdir() if path.name != name]
    for wrong in (*others, "../x", "", "%2e%2e", name + "\n"):
        assert store.read(wrong) is None
    assert store.read(name) is not None


def test_where_snapshots_go_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATE_DIRECTORY", "/var/lib/unit:/var/lib/second")
    assert default_directory() == Path("/var/lib/unit/snapshots")
    monkeypatch.delenv("STATE_DIRECTORY")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert default_directory() == Path("/var/lib/argus/snapshots")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("XDG_STATE_HOME", "/home/me/state")
    assert default_directory() == Path("/home/me/state/argus/snapshots")


def test_peers_are_alive_of_the_same_role_and_not_accused(base: Path) -> None:
    from argus._native import monotonic_ns

    with closing(FileSource(base)) as source:
        ranks = source.scan(monotonic_ns()).ranks
        assert next(each.state.identity.rank for each in peers(ranks, "run", "pp0", [0])) in (1, 3)
        assert len(peers(ranks, "run", "pp0", [0, 1])) == 2
        assert len(peers(ranks, "run", "pp0", [0, 1, 2])) == 1
        assert peers(ranks, "run", "pp1", [0]) == []
        assert peers(ranks, "other", "pp0", [0]) == []
        assert peers([rank._replace(up=False) for rank in ranks], "run", "pp0", [0]) == []
