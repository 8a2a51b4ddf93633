"""``argus doctor`` on this machine, on broken settings, and against real servers."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from argus import ruleset
from argus.doctor import exporter, gpu, node, prometheus, rank, stacks
from argus.doctor.examine import examine
from argus.doctor.finding import Finding, Level, ok
from argus.exporter.service import Exporter, Options
from argus.prometheus import Prometheus
from argus.stacks.dump import find_py_spy
from exporter_support import Rank, until
from hardware_support import UUIDS, Nvml
from native_support import environment, small_disk

ROOT = Path(__file__).resolve().parent.parent
TORCHRUN = {
    "RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "gpu-1",
    "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "exp-7",
}  # fmt: skip


def doctor(base: Path, *flags: str, **more: str) -> tuple[int, list[dict[str, str]]]:
    """Exit status and findings of the command in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "argus", "doctor", "--json", *flags],
        env=environment(base, **more), capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)


def text(findings: Iterable[Finding], level: Level) -> str:
    """What findings of a level say, with the mends."""
    return "\n".join(f"{each.found} -> {each.mend}" for each in findings if each.level is level)


def test_inside_a_job_all_is_well_and_nothing_is_left_behind(tmp_path: Path) -> None:
    status, findings = doctor(tmp_path, "--timeout", "60", **TORCHRUN)
    assert status == 0, findings
    by_check: dict[str, list[str]] = {}
    for finding in findings:
        by_check.setdefault(finding["check"], []).append(finding["found"])
        assert finding["level"] != "problem"
        assert finding["mend"] or finding["level"] == "ok" or "torch is not installed" in finding["found"]
    assert list(by_check) == [
        "python", "identity", "settings", "shared memory", "limits", "clock", "stacks", "gpu", "kernels",
        "exporter",
    ]  # fmt: skip
    (who,) = by_check["identity"]
    assert who.startswith("rank 3 of 8 (torchrun), node ")
    assert who.endswith("run exp-7 (TORCHELASTIC_RUN_ID)")
    assert any("a segment could be made and removed" in found for found in by_check["shared memory"])
    assert list(tmp_path.iterdir()) == []


def test_a_problem_is_told_with_its_mend_and_the_exit_status(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "argus", "doctor", "--exporter", "127.0.0.1:1", "--timeout", "60"]
    done = subprocess.run(
        command, env=environment(tmp_path), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1
    assert "exporter       problem  http://127.0.0.1:1/metrics: nobody answers there\n" in done.stdout
    assert "-> start argus exporter on this node" in done.stdout
    assert re.search(r"^1 problem, \d+ notes?$", done.stdout, re.MULTILINE)
    bad = subprocess.run([*command, "--timeout", "never"], capture_output=True, text=True, timeout=60)
    assert bad.returncode == 2


def test_a_check_that_hangs_or_fails_does_not_hide_the_others() -> None:
    release = threading.Event()

    def hangs() -> Iterator[Finding]:
        yield ok("so far")
        release.wait()

    def fails() -> Iterator[Finding]:
        raise RuntimeError("oops")

    found = examine({"a": hangs, "b": fails, "c": lambda: [ok("fine")]}, 0.2)
    release.set()
    assert [each.found for each in found["a"]] == ["so far", "no answer within 0.2 s"]
    assert [each.found for each in found["b"]] == ["the check itself failed: RuntimeError: oops"]
    assert found["c"] == [ok("fine")]


@pytest.mark.parametrize(
    ("environ", "level", "words"),
    [
        ({}, Level.OK, "no variable ARGUS_… is set"),
        ({"ARGUS_DIR": "/x"}, Level.OK, "ARGUS_DIR"),
        ({"ARGUS_KERNAL_PATTERNS": "x"}, Level.NOTE, "is ARGUS_KERNEL_PATTERNS meant?"),
        ({"ARGUS_EVNTS": "0"}, Level.NOTE, "is ARGUS_FLIGHT_EVENTS meant?"),
        ({"ARGUS_HELLO": "1"}, Level.NOTE, "unset it"),
        ({"ARGUS_KERNEL_PATTERNS": "/nowhere/x"}, Level.PROBLEM, "/nowhere/x, which is not there"),
        ({"ARGUS_KERNEL_ATTRIBUTION": "memsett"}, Level.PROBLEM, "'memsett' is none of auto, memset, call"),
        ({"ARGUS_DISABLE": "1"}, Level.NOTE, "are not traced"),
        ({"ARGUS_STACKS": "-1"}, Level.NOTE, "'-1' is no number of samples a second"),
        ({"NVTX_INJECTION64_PATH": "/nowhere/lib.so"}, Level.PROBLEM, "_native.abi3.so"),
        ({"CUDA_INJECTION64_PATH": "/nowhere/lib.so"}, Level.PROBLEM, "which is not there"),
        ({"CUDA_INJECTION64_PATH": os.devnull}, Level.NOTE, "another tool"),
    ],
)
def test_settings_that_would_be_silently_wrong_are_named(
    environ: dict[str, str], level: Level, words: str
) -> None:
    (finding,) = rank.settings(environ)
    assert finding.level is level
    assert words in f"{finding.found} -> {finding.mend}"


def test_every_variable_that_argus_reads_is_known() -> None:
    read = set()
    for path in (ROOT / "exporter" / "argus").rglob("*.py"):
        if path.parent.name != "doctor":
            read |= set(re.findall(r'"(ARGUS_[A-Z_]+)"', path.read_text()))
    for path in (ROOT / "native").rglob("*.c*"):
        read |= set(re.findall(r'(?:getenv|is_set)\("(ARGUS_[A-Z_]+)"', path.read_text()))
    assert set(rank.VARIABLES) == read


def test_every_variable_is_in_the_documentation() -> None:
    told = (ROOT / "docs" / "tracing.md").read_text("utf-8").split("## Environment variables")[1]
    assert set(re.findall(r"`(ARGUS_[A-Z_]+)`", told.split("\n## ")[0])) == set(rank.VARIABLES)


def test_a_misspelled_attribution_is_said_by_the_rank_itself(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import argus; argus.init(run_id='r')"],
        env=environment(tmp_path, ARGUS_KERNEL_ATTRIBUTION="Memset", ARGUS_KERNELS="0"),
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert (
        done.stderr.count("ARGUS_KERNEL_ATTRIBUTION='Memset' is none of auto, memset, call, api, none") == 1
    )


def test_a_rank_beyond_the_world_is_a_problem() -> None:
    (beyond,) = rank.identity({**TORCHRUN, "RANK": "8"})
    assert beyond.level is Level.PROBLEM
    assert beyond.found.startswith("rank 8 of 8 (torchrun)")


def test_ranks_without_a_launcher_or_a_local_rank_are_noted() -> None:
    (alone,) = rank.identity({})
    assert alone.level is Level.NOTE
    assert "rank 0 of 1 (no launcher found)" in alone.found
    found = list(rank.identity({"RANK": "1", "WORLD_SIZE": "2"}))
    assert "RANK is set without LOCAL_RANK" in found[-1].found
    (slurm,) = rank.identity(
        {"SLURM_PROCID": "5", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "16", "SLURM_JOB_ID": "77"}
    )
    assert slurm.found.startswith("rank 5 of 16 (Slurm)")
    assert "run 77 (SLURM_JOB_ID)" in slurm.found


def test_shared_memory_without_room_or_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    absent = tmp_path / "absent"
    monkeypatch.setenv("ARGUS_DIR", str(absent))
    assert "is no directory" in text(node.shared_memory({}), Level.PROBLEM)
    absent.mkdir()
    (absent / f"argus-{os.geteuid()}").write_text("in the way")
    assert "is not a directory of this user" in text(node.shared_memory({}), Level.PROBLEM)
    monkeypatch.setenv("ARGUS_DIR", str(tmp_path))
    with small_disk(tmp_path, 1024):
        found = list(node.shared_memory({"LOCAL_WORLD_SIZE": "4"}))
        told = text(found, Level.PROBLEM)
        assert "1 MiB free of 1 MiB; 4 ranks take up to 8 MiB" in told
        assert "--shm-size" in told
        assert "on a tmpfs" not in text(found, Level.NOTE)
        filler = tmp_path / "filler"
        filler.write_bytes(bytes(os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize))
        assert "no segment can be made" in text(node.shared_memory({}), Level.PROBLEM)
        assert sorted(tmp_path.iterdir()) == [filler]


def test_a_clock_that_is_slow_to_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node, "_clock_cost_ns", lambda: 1800.0)
    assert "1800 ns a reading: each phase reads it twice" in text(node.clock(), Level.PROBLEM)


def test_gpus_are_listed_and_lost_ones_are_problems() -> None:
    nvml = Nvml()
    nvml.reset(3)
    nvml.set(0, temperature__0=50, power=300_000, mig=1)
    nvml.instance(0, 0, "MIG-a")
    try:
        nvml.lose(2)
        found = list(gpu.management())
        assert f'GPU 0, Stand-in "H100", {UUIDS[0]}, PCI 0000:3a:00.0, driver 570' in text(found, Level.OK)
        assert "2 values, 1 MIG instances" in text(found, Level.OK)
        assert "1 GPUs can't be opened" in text(found, Level.PROBLEM)
        nvml.answer_init(Nvml.MISMATCH)
        assert "restart the machine" in text(gpu.management(), Level.PROBLEM)
    finally:
        nvml.reset(0)
        nvml.answer_init(Nvml.NO_DRIVER)


def test_a_container_with_a_gpu_but_without_its_utilities(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = Nvml()
    nvml.answer_init(Nvml.NO_DRIVER)
    assert text(gpu.management(), Level.PROBLEM) == ""
    monkeypatch.setattr(gpu, "DEVICES", (os.devnull,))
    assert "NVIDIA_DRIVER_CAPABILITIES" in text(gpu.management(), Level.PROBLEM)


def test_cupti_is_tried_in_a_process_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (off,) = gpu.kernels({"ARGUS_KERNELS": "0"})
    assert off.level is Level.NOTE
    monkeypatch.setattr(gpu, "DEVICES", (os.devnull,))
    told = text(gpu.kernels({"ARGUS_CUPTI": "/nowhere/libcupti.so"}), Level.PROBLEM)
    assert "can't be loaded -> check the path, or unset it" in told
    source, library = tmp_path / "cupti.c", tmp_path / "libcupti.so"
    source.write_text(
        "#include <stdlib.h>\n__attribute__((constructor)) static void end(void) { abort(); }\n"
    )
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True, timeout=60)
    told = text(gpu.kernels({"ARGUS_CUPTI": str(library)}), Level.PROBLEM)
    assert "ended a trial process with status -6" in told


def test_stacks_can_be_taken_where_py_spy_may() -> None:
    find_py_spy()
    if os.geteuid() != 0:
        pytest.skip("only root may trace for sure")
    assert "py-spy could take the stack" in text(stacks.tracing(), Level.OK)


def test_prometheus_is_followed_from_nothing_to_all_well(
    tmp_path: Path, prometheus_binary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        Exporter(Options(addresses=("127.0.0.1:0",), segments=tmp_path)) as served,
        Prometheus("scrape_configs: []", {}, binary=prometheus_binary) as server,
    ):
        url = served.servers[0].url
        assert "it sees no rank" in text(exporter.exporter(url, True), Level.NOTE)

        def examined() -> str:
            return text(prometheus.prometheus(server.url, url), Level.PROBLEM)

        told = examined()
        assert "it scrapes no ARGUS exporter" in told
        assert "rules are not loaded -> write them with argus rules --output" in told
        with Rank(tmp_path, "job", 0, world_size=1):
            found = list(exporter.exporter(url, True))
            assert "it sees 1 ranks of job" in text(found, Level.OK)
            assert text(found, Level.PROBLEM) == ""
            target = url.removeprefix("http://").rstrip("/")
            config = f"""
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [rules/*.yml]
scrape_configs: [{{job_name: anything, static_configs: [{{targets: ["{target}"]}}]}}]
"""
            server.reload(config, ruleset.render(scrape_interval=2.0))
            until(lambda: "rules are evaluated every 2 s, ranks scraped every 1 s" in examined())
            server.reload(config, ruleset.render(scrape_interval=1.0))
            until(lambda: examined() == "")
            until(lambda: "samples of ranks" in text(prometheus.prometheus(server.url, url), Level.OK))
            found = list(prometheus.prometheus(server.url, url))
            assert f"this node's exporter is {target}" in text(found, Level.OK)
            assert "it scrapes 1 ARGUS exporters every 1 s" in text(found, Level.OK)
            assert "delivers alerts to no Alertmanager" in text(found, Level.NOTE)
            assert "classic histograms only" in text(found, Level.NOTE)
            # Another exporter on the same page's place would be noticed: it began at another moment.
            other = Exporter(Options(addresses=("127.0.0.1:0",), segments=tmp_path))
            monkeypatch.setattr(exporter, "CONSTANTS", {"LAYOUT_VERSION": 0})
            told = text(exporter.exporter(other.servers[0].url, True), Level.PROBLEM)
            other.close()
            assert "install the same version on both sides" in told
    assert "check the address" in examined()
    assert "check the address" in text(prometheus.alertmanager("127.0.0.1:1"), Level.PROBLEM)
