"""The demo: one whole run, its end by Ctrl-C, and what it needs."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed (pip install argus-gpu[torch])")

from argus import ruleset
from argus.demo.control import Fault, Report, order, ordered, report, reported
from argus.demo.stack import alertmanager_config, prometheus_config
from argus.demo.verdict import Accusation, delivered, describe, expected
from argus.prometheus import BinaryNotFoundError, find_alertmanager, find_prometheus

DEMO = [sys.executable, "-m", "argus.cli", "demo"]


@pytest.fixture
def _servers() -> None:
    try:
        find_prometheus()
        find_alertmanager()
    except BinaryNotFoundError as error:
        pytest.skip(str(error).splitlines()[0])


def _processes_of(run_id: str) -> list[str]:
    """Command lines of the processes that belong to a run."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            environment = (entry / "environ").read_bytes().decode(errors="replace")
        except (OSError, ValueError):
            continue
        if run_id in command or f"ARGUS_RUN_ID={run_id}\0" in environment:
            found.append(command)
    return found


@pytest.mark.usefixtures("_servers")
def test_the_slowed_rank_and_phase_are_accused_and_nothing_is_left_running(tmp_path: Path) -> None:
    begun = time.monotonic()
    done = subprocess.run(
        [*DEMO, "--rank", "1", "--phase", "forward"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=240,
    )
    output = done.stdout
    assert done.returncode == 0, output + done.stderr
    assert time.monotonic() - begun < 180
    assert "RIGHT: ArgusComputeStraggler rank 1 phase forward accused, nobody else" in output
    took = re.search(r"Notified ([0-9.]+) s after the fault", output)
    assert took is not None
    assert float(took[1]) < 60
    for row in ("rank +1", "phase +forward", "runbook +file:.*/ArgusComputeStraggler.md"):
        assert re.search(rf"^ +{row}$", output, re.MULTILINE), row
    words = " ".join(output.split())
    assert re.search(r"needs (2\.[89]|3\.[012])\d* times as long", words)
    assert re.search(r"loses about [0-9.]+ GPU-hours per hour", words)
    run_id = re.search(r"run (demo-\d+)", output)
    assert run_id is not None
    assert _processes_of(run_id[1]) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("_servers")
def test_ctrl_c_stops_everything(tmp_path: Path) -> None:
    demo = subprocess.Popen(
        DEMO, env={**os.environ, "TMPDIR": str(tmp_path)}, stdout=subprocess.PIPE, text=True
    )
    try:
        assert demo.stdout is not None
        output = ""
        while "Prometheus  " not in output:
            line = demo.stdout.readline()
            assert line, output
            output += line
        run_id = re.search(r"run (demo-\d+)", output)
        assert run_id is not None, output
        assert len(_processes_of(run_id[1])) >= 1
        demo.send_signal(signal.SIGINT)
        assert demo.wait(30) == 130
    finally:
        demo.kill()
        demo.communicate()
    deadline = time.monotonic() + 20
    while _processes_of(run_id[1]):  # torchrun's ranks end with it
        assert time.monotonic() < deadline, _processes_of(run_id[1])
        time.sleep(0.1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("missing", ["ARGUS_PROMETHEUS", "ARGUS_ALERTMANAGER"])
def test_what_is_missing_is_named(missing: str) -> None:
    done = subprocess.run(
        DEMO, env={**os.environ, missing: "/nowhere/at-all"}, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert f"from ${missing} (/nowhere/at-all)" in done.stderr


def test_orders_and_reports_arrive_whole(tmp_path: Path) -> None:
    assert ordered(tmp_path) is None
    assert reported(tmp_path) is None
    order(tmp_path, Fault(2, "forward", 3.0))
    report(tmp_path, Report(1.5, 0.1, 0.2, 0.4))
    assert ordered(tmp_path) == Fault(2, "forward", 3.0)
    assert reported(tmp_path) == Report(1.5, 0.1, 0.2, 0.4)


def _alert(name: str, status: str = "firing", **labels: str) -> dict[str, Any]:
    return {
        "status": status,
        "labels": {"alertname": name, "run_id": "r", "severity": "critical", **labels},
        "annotations": {"summary": "Rank 1\n  is slow", "runbook_url": "file:///x.md", "dashboard_url": "d"},
    }


def test_a_verdict_counts_what_fires_and_reads_well() -> None:
    wanted = expected(Fault(1, "data_loading", 2.0))
    assert str(wanted) == "ArgusHostStall rank 1 phase data_loading"
    host = _alert("ArgusHostStall", rank="1", phase="data_loading")
    over = _alert("ArgusRankDown", "resolved", rank="3")
    found = delivered([{"alerts": [over]}, {"alerts": [host, over]}])
    assert found == {Accusation("ArgusHostStall", "1", "data_loading"): host}
    assert describe(host).splitlines() == [
        "  alert        ArgusHostStall (critical)",
        "  run_id       r",
        "  rank         1",
        "  phase        data_loading",
        "  summary      Rank 1 is slow",
        "  runbook      file:///x.md",
    ]


def test_configurations_are_valid(tmp_path: Path) -> None:
    for tool in ("promtool", "amtool"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    (tmp_path / "alertmanager.yml").write_text(alertmanager_config("http://127.0.0.1:1/webhook"))
    (tmp_path / "rules").mkdir()
    for name, text in ruleset.render_files(ruleset.Options(scrape_interval=5)).items():
        (tmp_path / "rules" / name).write_text(text)
    (tmp_path / "prometheus.yml").write_text(prometheus_config("127.0.0.1:1", "127.0.0.1:2"))
    for command in (
        ["amtool", "check-config", "alertmanager.yml"],
        ["promtool", "check", "config", "prometheus.yml"],
    ):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
