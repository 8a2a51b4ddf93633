"""``argus exporter`` as people run it, and ``argus.exporter.serve``."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

from argus import _native, cli
from argus.exporter import serve
from argus.exporter.registry import COLLECTORS
from exporter_support import Rank, until


def _exporter(*flags: str, base: Path) -> list[str]:
    return [sys.executable, "-m", "argus.cli", "exporter", "--segments.directory", str(base), *flags]


@contextmanager
def _running(base: Path, *flags: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A running exporter and its URL, from its log."""
    command = _exporter("--web.listen-address", "127.0.0.1:0", *flags, base=base)
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            for line in process.stderr:
                found = re.search(r"listening on (\S+)", line)
                if found:
                    break
            else:
                raise AssertionError("the exporter did not start")
            yield process, found[1]
        finally:
            process.kill()


def _up(url: str) -> list[str]:
    lines = requests.get(url + "metrics", timeout=20).text.splitlines()
    return [line for line in lines if line.startswith("argus_rank_up")]


def test_ranks_come_and_go(tmp_path: Path) -> None:
    with _running(tmp_path) as (process, url):
        until(lambda: requests.get(url + "-/ready", timeout=20).status_code == 200)
        assert _up(url) == []
        with Rank(tmp_path, "run", 0, world_size=1) as rank:
            assert _up(url) == ['argus_rank_up{run_id="run",role="pp0",rank="0"} 1']
            rank.kill()
            assert _up(url) == ['argus_rank_up{run_id="run",role="pp0",rank="0"} 0']
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def _terminated_after_a_clean_end(base: Path, process: subprocess.Popen[str], url: str) -> None:
    """A rank ends and at once the exporter is told to; it says that it stays."""
    with Rank(base, "run", 0, world_size=1) as rank:
        assert len(_up(url)) == 1
        rank.tell("ended")
    process.send_signal(signal.SIGTERM)
    assert process.stderr is not None
    assert any("staying for the next one" in line for line in process.stderr)


def test_a_sidecar_that_ends_with_its_job_shows_the_clean_end_first(tmp_path: Path) -> None:
    with _running(tmp_path, "--web.linger", "600") as (process, url):
        _terminated_after_a_clean_end(tmp_path, process, url)
        page = requests.get(url + "metrics", timeout=20).text
        assert 'argus_exporter_ranks_ended{run_id="run"} 1' in page
        assert process.wait(20) == 0


def test_an_exporter_that_lingers_can_be_hurried_and_does_not_wait_forever(tmp_path: Path) -> None:
    with _running(tmp_path, "--web.linger", "600") as (process, url):
        _terminated_after_a_clean_end(tmp_path, process, url)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    with _running(tmp_path, "--web.linger", "0.1") as (process, url):
        _terminated_after_a_clean_end(tmp_path, process, url)
        assert process.wait(20) == 0


def test_interrupt_ends_it_cleanly(tmp_path: Path) -> None:
    with _running(tmp_path) as (process, _):
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()


def test_a_killed_exporter_changes_nothing_for_the_rank(tmp_path: Path) -> None:
    with Rank(tmp_path) as rank:
        rank.tell("hammer 0.0001")
        with _running(tmp_path) as (process, url):
            _up(url)
            process.kill()
            process.wait()
        assert rank.process.poll() is None
        with _running(tmp_path) as (_, url):
            assert len(_up(url)) == 1

            def iteration() -> str:
                text = requests.get(url + "metrics", timeout=20).text
                found = re.search(r"^argus_iteration\{.*\} (\d+)$", text, re.MULTILINE)
                assert found
                return found[1]

            before = iteration()
            until(lambda: iteration() != before)


def test_a_rank_of_another_layout_is_named_and_skipped(tmp_path: Path) -> None:
    """The exporter was upgraded (or not) under a running rank."""
    with Rank(tmp_path, "old", 0) as old, Rank(tmp_path, "new", 0):
        with old.path.open("r+b") as file:
            file.seek(8)
            file.write(b"\x00")
        result = subprocess.run(
            _exporter("--once", base=tmp_path), capture_output=True, text=True, timeout=60
        )
        assert result.returncode == 0
        assert 'argus_exporter_segments{state="incompatible"} 1' in result.stdout
        assert 'argus_rank_up{run_id="new",role="pp0",rank="0"} 1' in result.stdout
        assert f"{old.path}: segment layout 0" in result.stderr
        assert "upgrade the training job's argus-gpu package" in result.stderr
        assert old.process.poll() is None
        old.tell("step")


def test_once_passes_promtool(tmp_path: Path, promtool: str) -> None:
    with Rank(tmp_path):
        page = subprocess.run(_exporter("--once", base=tmp_path), capture_output=True, timeout=60).stdout
    result = subprocess.run([promtool, "check", "metrics"], input=page, capture_output=True, timeout=60)
    assert (result.returncode, result.stderr) == (0, b"")


def test_only_series_that_rules_read(tmp_path: Path) -> None:
    with Rank(tmp_path):
        command = _exporter("--once", "--series", "rules", base=tmp_path)
        page = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    names = {line.partition("{")[0] for line in page.splitlines()}
    assert {"argus_rank_up", "argus_window_phase_seconds", "argus_window_iteration_seconds_sum"} <= names
    assert not [name for name in names if name.startswith("argus_phase_seconds")]
    assert "argus_window_phase_seconds_sum" not in names


def test_layers_can_be_switched_off(tmp_path: Path) -> None:
    with Rank(tmp_path):
        flags = [
            "--once",
            "--histogram.classic",
            "none",
            "--no-collector.process",
            "--no-collector.collectives",
        ]
        page = subprocess.run(
            _exporter(*flags, base=tmp_path), capture_output=True, text=True, timeout=60
        ).stdout
    assert "process_" not in page
    assert "argus_collective_seconds" not in page
    assert "argus_window_collective_seconds" in page
    assert set(re.findall(r',le="([^"]+)"', page)) == {"+Inf"}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--web.listen-address", "9733"], "listen address '9733' needs the form"),
        (
            ["--web.listen-address", "127.0.0.1:0", "--web.listen-address", "nowhere.invalid:0"],
            "can't listen on",
        ),
        (["--web.config.file", "absent.yml"], "absent.yml can't be read"),
        (["--web.telemetry-path", "metrics"], "no usable path"),
        (["--web.telemetry-path", "/"], "no usable path"),
        (["--web.max-requests", "0"], "not a whole number above 0"),
        (["--segments.retention", "-1"], "not a number of seconds"),
        (["--histogram.classic", "yes"], "is none of iterations, all, none"),
        (["--series", "few"], "is none of all, rules"),
        (["--log.level", "loud"], "invalid choice"),
    ],
)
def test_bad_flags_say_what_is_wrong(tmp_path: Path, flags: list[str], message: str) -> None:
    result = subprocess.run(_exporter(*flags, base=tmp_path), capture_output=True, text=True, timeout=60)
    assert result.returncode == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_help_names_every_collector(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        cli.main(["exporter", "--help"])
    assert exit_.value.code == 0
    text = capsys.readouterr().out
    assert all(f"--no-collector.{name}" in text for name in COLLECTORS)


def test_the_command_line_without_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    assert "exporter" in capsys.readouterr().out
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"argus {_native.__version__}\n"
    with pytest.raises(SystemExit) as exit_:
        cli.main(["nonsense"])
    assert exit_.value.code == 2


def test_an_unknown_flag_is_answered_by_the_command_that_got_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        cli.main(["rules", "--nonsense"])
    assert exit_.value.code == 2
    assert capsys.readouterr().err.endswith("\nargus rules: error: unrecognized arguments: --nonsense\n")


def test_a_segments_directory_that_is_missing_is_said(tmp_path: Path) -> None:
    command = _exporter("--once", base=tmp_path / "absent")
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert f"{tmp_path / 'absent'} does not exist" in result.stderr


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        cli.main([name, "--help"])
    assert exit_.value.code == 0
    assert f"argus {name}" in capsys.readouterr().out


def test_other_commands_are_not_imported_for_one() -> None:
    code = (
        "import sys; from argus import cli\n"
        "try: cli.main(['exporter', '--help'])\n"
        "except SystemExit: pass\n"
        "print([m for m in sys.modules if m.startswith(("
        "'argus.replay', 'argus.diagnose', 'torch', 'pyarrow'))])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert result.stdout.splitlines()[-1] == "[]"


def test_a_closed_pipe_is_no_error(tmp_path: Path) -> None:
    with Rank(tmp_path):
        command = " ".join(_exporter("--once", base=tmp_path)) + " | true; echo ${PIPESTATUS[0]}"
        result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert "Traceback" not in result.stderr


def test_serving_from_inside_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARGUS_DIR", str(tmp_path))
    directory = tmp_path / f"argus-{os.getuid()}"
    directory.mkdir()
    own = _native.Segment(str(directory / "own.0.seg"), run_id="own", rank=0)
    try:
        with Rank(tmp_path, "neighbour", 1), serve(port=0) as exporter:
            url = exporter.servers[0].url
            assert url.startswith("http://127.0.0.1:")
            assert _up(url) == [
                'argus_rank_up{run_id="neighbour",role="pp0",rank="1"} 1',
                'argus_rank_up{run_id="own",role="pp0",rank="0"} 1',
            ]
            # Reading did not cost this process its lock.
            page = subprocess.run(
                _exporter("--once", base=tmp_path), capture_output=True, text=True, timeout=60
            )
            assert 'argus_rank_up{run_id="own",role="pp0",rank="0"} 1' in page.stdout
    finally:
        own.close("ended")
