"""The exporter's side of the flight recorder: /trace, argus trace --exporter, and who may ask."""

from __future__ import annotations

import gzip
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import bcrypt
import pytest

from argus.cli import main
from argus.exporter.lifecycle import FileSource
from argus.exporter.service import Exporter, Options
from argus.prometheus import Alertmanager, BinaryNotFoundError, find_alertmanager
from exporter_support import until
from flight_support import ask, delivery, exporter, four_ranks, job, snapshots
from native_support import segment_files, wait_for
from perfetto_support import decode

PASSWORD = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with four_ranks(tmp_path_factory.mktemp("segments")) as directory:
        yield directory


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
            # What is open may be a collective, of which no more is known yet.
            assert {each.name for each in tracks["phases"] if each.end is not None} == {"forward"}
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
