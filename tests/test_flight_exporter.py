"""The exporter's side of the flight recorder: /trace, /alerts, /snapshots, argus trace --exporter."""

from __future__ import annotations

import gzip
import http.client
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import bcrypt
import pytest

from argus import catalogue
from argus.cli import main
from argus.exporter.flight.alerts import MAX_BYTES, Accusation, PayloadError, accusations
from argus.exporter.flight.receiver import Receiver, peers
from argus.exporter.flight.store import Store, default_directory
from argus.exporter.lifecycle import FileSource
from argus.exporter.service import Exporter, Options, SnapshotOptions
from argus.prometheus import Alertmanager, BinaryNotFoundError, find_alertmanager
from exporter_support import until
from native_support import environment, segment_files, wait_for
from perfetto_support import decode

PASSWORD = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
JOB = """
import sys, time
import argus
rank, world, pace = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
argus.init(run_id=sys.argv[4], rank=rank, world_size=world, node="node-a")
print("ready", flush=True)
while True:
    with argus.iteration():
        with argus.phase("forward"):
            time.sleep(pace)
        with argus.collective("all_reduce", bytes=64):
            time.sleep(0.001)
"""


@contextmanager
def job(base: Path, paces: Sequence[float], run_id: str = "run") -> Iterator[list[subprocess.Popen[str]]]:
    """Ranks, each with a process of its own, whose iterations take so many seconds."""
    processes = []
    try:
        for rank, pace in enumerate(paces):
            arguments = [str(rank), str(len(paces)), str(pace), run_id]
            processes.append(
                subprocess.Popen(
                    [sys.executable, "-c", JOB, *arguments],
                    env=environment(base),
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        yield processes
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Four ranks of one run that go on all the time, rank 2 the slowest; several iterations are done."""
    directory = tmp_path_factory.mktemp("segments")
    with job(directory, [0.002, 0.002, 0.02, 0.0025]):
        with closing(FileSource(directory)) as source:
            wait_for(lambda: all_have_windows(source), "windows")
        yield directory


def all_have_windows(source: FileSource) -> bool:
    from argus._native import monotonic_ns

    ranks = source.scan(monotonic_ns()).ranks
    return len(ranks) == 4 and all(rank.state.window() is not None for rank in ranks)


@contextmanager
def exporter(base: Path, directory: Path, **options: Any) -> Iterator[Exporter]:
    snapshots = SnapshotOptions(directory / "snapshots", **options.pop("snapshots", {}))
    made = Options(addresses=("127.0.0.1:0",), segments=base, snapshots=snapshots)
    with Exporter(Options(**{**made.__dict__, **options})) as running:
        yield running


def ask(
    running: Exporter, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
) -> tuple[int, bytes, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", running.servers[0].server_port, timeout=30)
    try:
        if body is not None:
            headers = {"Content-Type": "application/json", **(headers or {})}
        connection.request("GET" if body is None else "POST", path, body, headers or {})
        response = connection.getresponse()
        return response.status, response.read(), dict(response.headers)
    finally:
        connection.close()


def delivery(*alerts: tuple[str, str, str], status: str = "firing") -> bytes:
    """As Alertmanager sends it: alert name, run, rank each."""
    return json.dumps(
        {
            "version": "4",
            "status": status,
            "alerts": [
                {
                    "status": status,
                    "labels": {"alertname": name, "run_id": run, "rank": rank, "severity": "critical"},
                }
                for name, run, rank in alerts
            ],
        }
    ).encode()


def snapshots(directory: Path) -> list[Path]:
    return sorted((directory / "snapshots").glob("*")) if (directory / "snapshots").exists() else []


# ---- /trace ----


def test_a_trace_over_http(base: Path, tmp_path: Path) -> None:
    with exporter(base, tmp_path) as running:
        status, body, headers = ask(running, "/trace?run_id=run&rank=1&rank=2&iterations=3")
        assert (status, headers["Content-Type"]) == (200, "application/octet-stream")
        shown = decode(body)
        assert list(shown) == ["rank 1 (pp0, node-a)", "rank 2 (pp0, node-a)"]
        for tracks in shown.values():
            assert {"iterations", "phases", "collectives"} <= set(tracks)
            whole = [each for each in tracks["iterations"] if each.end is not None]
            assert len(whole) == 3
            assert {each.name for each in tracks["phases"]} == {"forward"}
        packed = ask(running, "/trace?ranks=0-3", headers={"Accept-Encoding": "gzip"})
        assert packed[2]["Content-Encoding"] == "gzip"
        assert len(decode(gzip.decompress(packed[1]))) == 4


@pytest.mark.parametrize(
    ("query", "status", "message"),
    [
        ("rank=x", 400, "ranks are numbers"),
        ("rank=1&color=red", 400, "'color' is not known"),
        ("iterations=a", 400, "iterations are N"),
        ("rank=1;2", 400, "ranks are numbers"),
        ("nonsense", 400, "bad query field"),
        ("&".join(["rank=1"] * 6000), 400, "Max number of fields exceeded"),
        ("run_id=other", 404, "no rank of run 'other' is here; there are ranks of 'run'"),
        ("rank=9", 404, "none of these ranks of run 'run' is here; the ranks here: 0, 1, 2, 3"),
        ("rank=1&iterations=999999-999999", 404, "no such iteration is in the flight recorder"),
    ],
)
def test_wrong_questions(base: Path, tmp_path: Path, query: str, status: int, message: str) -> None:
    with exporter(base, tmp_path) as running:
        got, body, _ = ask(running, f"/trace?{query}")
        assert (got, message in body.decode()) == (status, True), body


def test_traces_and_alerts_can_be_left_out(base: Path, tmp_path: Path) -> None:
    with exporter(base, tmp_path, trace=False) as running:
        assert ask(running, "/trace")[0] == 404
        assert b"/trace" not in ask(running, "/")[1]
    with exporter(base, tmp_path, snapshots={}) as running:
        landing = ask(running, "/")[1]
        assert b'href="/trace"' in landing
        assert b'href="/snapshots"' in landing
    with Exporter(Options(addresses=("127.0.0.1:0",), segments=base)) as running:
        assert ask(running, "/alerts", delivery(("A", "run", "2")))[0] == 405
        assert ask(running, "/snapshots")[0] == 404
        assert b"argus_exporter_snapshots" not in ask(running, "/metrics")[1]


def test_argus_trace_from_files_and_from_exporters(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    web = tmp_path / "web.yml"
    web.write_text(f"basic_auth_users: {{alice: {PASSWORD}}}\n")
    monkeypatch.setenv("HOME", str(tmp_path))  # no ~/.netrc of the user
    out = tmp_path / "out.pftrace.gz"
    assert (
        main(["trace", "--rank", "2", "--segments-dir", str(base), "--iterations", "2", "-o", str(out)]) == 0
    )
    assert "1 rank, " in capsys.readouterr().out
    assert list(decode(out.read_bytes())) == ["rank 2 (pp0, node-a)"]
    with job(tmp_path, [0.002], "elsewhere"), ExitStack() as stack:
        wait_for(lambda: segment_files(tmp_path), "the segment")
        first = stack.enter_context(exporter(base, tmp_path, config_file=web))
        second = stack.enter_context(exporter(tmp_path, tmp_path))
        url = f"127.0.0.1:{first.servers[0].server_port}"
        empty = f"http://127.0.0.1:{second.servers[0].server_port}/"
        ranks = ["--run", "run", "--ranks", "0,3,9", "-o", str(out)]
        assert main(["trace", "--exporter", url, *ranks]) == 1
        said = capsys.readouterr().err
        assert f"{url}: answered 401: it wants a password" in said
        assert main(["trace", "--exporter", f"http://alice:secret@{url}", "--exporter", empty, *ranks]) == 0
        said = capsys.readouterr()
        assert "2 ranks" in said.out
        assert "rank 9 was not found" in said.err
        assert "secret" not in said.out + said.err
    assert list(decode(out.read_bytes())) == ["rank 0 (pp0, node-a)", "rank 3 (pp0, node-a)"]
    assert main(["trace", "--exporter", empty, *ranks]) == 1
    said = capsys.readouterr().err
    assert empty in said
    assert said.count("\n") == 1


def test_argus_trace_says_what_there_is(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = ["--segments-dir", str(base), "-o", str(tmp_path / "x")]
    assert main(["trace", "--rank", "9", *there]) == 1
    assert "the ranks here: 0, 1, 2, 3; this command reads the ranks of this node" in capsys.readouterr().err
    assert main(["trace", "--segments-dir", str(tmp_path), "-o", str(tmp_path / "x")]) == 1
    assert f"{tmp_path}: no rank is here" in capsys.readouterr().err
    assert main(["trace", "--rank", "9-1", *there]) == 2
    assert main(["trace", "--rank", "1", "--segments-dir", str(base), "-o", str(tmp_path / "no" / "x")]) == 1
    assert f"argus trace: {tmp_path / 'no' / 'x'}: No such file or directory\n" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_node_that_is_down_does_not_cost_the_trace_of_the_others(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        down = f"http://127.0.0.1:{server.getsockname()[1]}"
    out = tmp_path / "out.pftrace"
    with exporter(base, tmp_path) as running:
        up = f"127.0.0.1:{running.servers[0].server_port}"
        asked = ["--run", "run", "--rank", "1", "-o", str(out)]
        assert main(["trace", "--exporter", down, "--exporter", up, *asked]) == 0
    refused = re.escape(f"{down}: Failed to establish a new connection: ") + ".*refused\n"
    assert re.match(f"argus trace: left out: {refused}", capsys.readouterr().err)
    assert list(decode(out.read_bytes())) == ["rank 1 (pp0, node-a)"]
    assert main(["trace", "--exporter", down, *asked]) == 1
    assert re.fullmatch(f"argus trace: {refused}", capsys.readouterr().err)


def test_a_rank_that_was_killed_is_still_there(tmp_path: Path) -> None:
    with job(tmp_path, [0.001]) as (process,):
        with closing(FileSource(tmp_path)) as source:
            from argus._native import monotonic_ns

            wait_for(
                lambda: [r for r in source.scan(monotonic_ns()).ranks if r.state.completed > 5], "iterations"
            )
        process.kill()
        process.wait()
        out = tmp_path / "out.pftrace"
        assert main(["trace", "--segments-dir", str(tmp_path), "-o", str(out)]) == 0
        (tracks,) = decode(out.read_bytes()).values()
        assert len(tracks["iterations"]) > 5
        assert len(segment_files(tmp_path)) == 1, "asking does not remove it"


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
            assert (status, said) == (200, b"no alert names a rank of this node\n")
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


# ---- passwords; a real Alertmanager ----


def test_passwords_are_asked_for_everywhere(base: Path, tmp_path: Path) -> None:
    web = tmp_path / "web.yml"
    web.write_text(f"basic_auth_users: {{alice: {PASSWORD}}}\n")
    alert = delivery(("A", "run", "2"))
    with exporter(base, tmp_path, config_file=web) as running:
        for path in ("/trace", "/snapshots", "/snapshots/x"):
            assert ask(running, path)[0] == 401
        assert ask(running, "/alerts", alert)[0] == 401
        assert ask(running, "/elsewhere", alert)[0] == 401
        assert snapshots(tmp_path) == []
        good = {"Authorization": "Basic YWxpY2U6c2VjcmV0"}  # alice:secret
        assert ask(running, "/alerts", alert, good)[0] == 200
        assert ask(running, "/snapshots", headers=good)[0] == 200
    assert len(snapshots(tmp_path)) == 1


def test_a_real_alertmanager_delivers(base: Path, tmp_path: Path) -> None:
    try:
        find_alertmanager()
    except BinaryNotFoundError as error:
        pytest.skip(str(error).splitlines()[0])
    import requests

    web = tmp_path / "web.yml"
    web.write_text(f"basic_auth_users: {{alice: {PASSWORD}}}\n")
    with exporter(base, tmp_path, config_file=web) as running:
        url = f"http://127.0.0.1:{running.servers[0].server_port}/alerts"
        configuration = f"""
route: {{receiver: argus, group_by: [run_id, alertname], group_wait: 0s, group_interval: 1s}}
receivers:
  - name: argus
    webhook_configs:
      - url: {url}
        send_resolved: false
        http_config: {{basic_auth: {{username: alice, password: secret}}}}
"""
        with Alertmanager(configuration) as alertmanager:
            labels = {
                "alertname": "ArgusComputeStraggler",
                "run_id": "run",
                "rank": "2",
                "severity": "critical",
            }
            posted = requests.post(f"{alertmanager.url}/api/v2/alerts", json=[{"labels": labels}], timeout=20)
            assert posted.status_code == 200
            until(lambda: any(path.suffix == ".gz" for path in snapshots(tmp_path)))
    (path,) = snapshots(tmp_path)
    assert "rank 2 (pp0, node-a)" in decode(path.read_bytes())
