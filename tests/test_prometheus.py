"""The private Prometheus and Alertmanager, run for real."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import requests

from argus.prometheus import (
    Alertmanager,
    AlertReceiver,
    BinaryNotFoundError,
    Process,
    Prometheus,
    QueryError,
    StartError,
    WebhookReceiver,
    binary_version,
    find_alertmanager,
    find_prometheus,
    find_promtool,
    servers,
)
from exporter_support import until

RULES = """
groups:
  - name: test
    interval: 200ms
    rules:
      - record: doubled
        expr: 2 * temperature
      - alert: Hot
        expr: temperature > 30
        labels: {severity: critical}
        annotations: {summary: "{{ $value }} degrees"}
"""


def _found(find: Callable[[], Path]) -> Path:
    try:
        return find()
    except BinaryNotFoundError as error:
        pytest.skip(str(error).splitlines()[0])


@pytest.fixture
def thermometer():
    """A scrape target whose one metric reads 42."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b"# TYPE temperature gauge\ntemperature 42\n"
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.block_on_close = False
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield f"127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


def _config(target: str, alertmanager: str) -> str:
    return f"""
global: {{scrape_interval: 200ms, evaluation_interval: 200ms}}
rule_files: [rules/*.yml]
alerting: {{alertmanagers: [{{api_version: v2, static_configs: [{{targets: ["{alertmanager}"]}}]}}]}}
scrape_configs: [{{job_name: thermometer, static_configs: [{{targets: ["{target}"]}}]}}]
"""


def test_alert_goes_from_target_to_webhook(thermometer: str, each_prometheus: Path) -> None:
    _found(find_alertmanager)
    with WebhookReceiver() as webhook:
        route = (
            f"route: {{receiver: hook, group_wait: 0s}}\n"
            f"receivers: [{{name: hook, webhook_configs: [{{url: {webhook.url!r}}}]}}]\n"
        )
        with (
            Alertmanager(route) as alertmanager,
            Prometheus(
                _config(thermometer, alertmanager.address),
                {"test.yml": RULES},
                binary=each_prometheus,
                native_histograms=True,
            ) as prometheus,
        ):
            delivery = webhook.wait(lambda payload: payload["status"] == "firing", 30)
            assert delivery is not None, alertmanager.tail()
            (alert,) = delivery.payload["alerts"]
            assert alert["labels"]["alertname"] == "Hot"
            assert alert["annotations"] == {"summary": "42 degrees"}
            assert alert["generatorURL"].startswith(prometheus.url)

            assert [sample.value for sample in prometheus.client.query("doubled")] == [84]
            assert prometheus.client.query("1 + 1")[0].value == 2
            (target,) = prometheus.client.targets()
            assert target["health"] == "up"
            (group,) = prometheus.client.rules()
            assert [rule["name"] for rule in group["rules"]] == ["doubled", "Hot"]
            assert [alert["state"] for alert in prometheus.client.alerts()] == ["firing"]
            with pytest.raises(QueryError, match="parse error"):
                prometheus.client.query("sum(")
            with pytest.raises(QueryError, match="matrix"):
                prometheus.client.query("up[1m]")
            folders = [prometheus.directory, alertmanager.directory]
        assert prometheus.poll() is not None
        assert alertmanager.poll() is not None
        assert not any(folder.exists() for folder in folders)


def test_prometheus_delivers_to_the_stand_in_for_alertmanager(thermometer: str, tmp_path: Path) -> None:
    _found(find_prometheus)
    with (
        AlertReceiver() as receiver,
        Prometheus(
            _config(thermometer, receiver.address),
            directory=tmp_path,
            flags=["--rules.alert.resend-delay=500ms"],
        ) as prometheus,
    ):
        until(lambda: bool(prometheus.client.query("temperature")))
        prometheus.wait_for_alertmanager()
        assert prometheus.client.alertmanagers() == [receiver.url]
        assert receiver.wait(lambda alerts: bool(alerts), 0.0) is None
        prometheus.reload(_config(thermometer, receiver.address), {"test.yml": RULES})
        assert receiver.wait(lambda alerts: bool(alerts), 20) is not None
        (alert,) = receiver.alerts()
        assert alert["labels"] == {
            "alertname": "Hot",
            "instance": thermometer,
            "job": "thermometer",
            "severity": "critical",
        }
    assert (tmp_path / "prometheus.yml").exists(), "a folder given by the caller stays"


def test_a_bad_configuration_is_told_from_the_log() -> None:
    _found(find_prometheus)
    with pytest.raises(StartError, match="field nonsense not found"):
        Prometheus("nonsense: 1\n")


def test_a_taken_port_is_tried_again(monkeypatch: pytest.MonkeyPatch, thermometer: str) -> None:
    _found(find_alertmanager)
    taken = int(thermometer.rpartition(":")[2])
    choose, chosen = servers.free_port, [taken]

    def taken_first() -> int:
        return chosen.pop() if chosen else choose()

    monkeypatch.setattr(servers, "free_port", taken_first)
    with Alertmanager("route: {receiver: nobody}\nreceivers: [{name: nobody}]\n") as alertmanager:
        assert alertmanager.address != thermometer
        assert requests.get(f"{alertmanager.url}/-/ready", timeout=5).status_code == 200


def test_a_child_ends_with_its_parent(tmp_path: Path) -> None:
    code = (
        "import sys, time, pathlib; from argus.prometheus import Process\n"
        "child = Process([sys.executable, '-c', 'import time; time.sleep(600)'], pathlib.Path(sys.argv[1]))\n"
        "print(child.pid, flush=True); time.sleep(600)"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "log")], stdout=subprocess.PIPE, text=True
    )
    try:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        # The launcher has become the program once the program's command line shows.
        until(lambda: b"launcher" not in Path(f"/proc/{child}/cmdline").read_bytes())
        os.kill(parent.pid, signal.SIGKILL)
        until(lambda: not _running(child))
    finally:
        parent.kill()
        parent.communicate()


def _running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_stop_kills_what_ignores_being_asked(tmp_path: Path) -> None:
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True)\n"
    child = Process([sys.executable, "-c", code + "time.sleep(600)"], tmp_path / "log")
    until(lambda: "deaf" in child.tail())
    assert child.stop(timeout=0.2) == -signal.SIGKILL
    assert child.stop() == -signal.SIGKILL


def test_an_interrupted_stop_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second Ctrl-C comes while the first one's stop waits."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    prometheus = Prometheus("", binary=_found(find_prometheus))
    (folder,) = tmp_path.iterdir()
    popen = subprocess.Popen
    wait = popen.wait

    def interrupted(self: subprocess.Popen[bytes], timeout: float | None = None) -> int:
        if timeout is not None:
            raise KeyboardInterrupt
        return wait(self)

    monkeypatch.setattr(popen, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        prometheus.stop()
    assert prometheus.poll() is not None
    assert not folder.exists()


def test_binaries_are_found_or_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "prometheus-alertmanager"
    program.write_text("#!/bin/sh\necho 'alertmanager, version 0.27.1 (branch: x)'\n")
    program.chmod(0o755)
    for variable in ("ARGUS_PROMETHEUS", "ARGUS_ALERTMANAGER", "ARGUS_PROMTOOL"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    assert find_alertmanager() == program
    assert binary_version(program) == (0, 27, 1)
    assert find_prometheus(program) == program
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    for find, package in [(find_prometheus, "prometheus"), (find_promtool, "prometheus")]:
        with pytest.raises(BinaryNotFoundError, match=f"apt install {package}`") as caught:
            find()
        assert "download page" in str(caught.value)
    monkeypatch.setenv("ARGUS_PROMETHEUS", str(tmp_path / "absent"))
    with pytest.raises(BinaryNotFoundError, match=r"from \$ARGUS_PROMETHEUS .*absent"):
        find_prometheus()
    program.write_text("#!/bin/sh\necho hello\n")
    with pytest.raises(BinaryNotFoundError, match="nothing like a version"):
        binary_version(program)


def test_a_receiver_refuses_what_is_not_for_it() -> None:
    with WebhookReceiver() as webhook:
        for body, url, status in [
            (b"{", webhook.url, 400),
            (b"[]", webhook.url, 400),
            (b'{"alerts": []}', webhook.url + "x", 404),
            (b'{"alerts": []}', webhook.url, 200),
        ]:
            assert requests.post(url, data=body, timeout=5).status_code == status
        assert len(webhook.deliveries) == 1
