"""``argus diagnose`` end to end: the verdict on real and made traces, and what it says when it can't tell."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from argus.cli import main
from traces_support import CASES, DATA, case, row, write_csv

pytest.importorskip("pyarrow")

pytestmark = pytest.mark.usefixtures("prometheus_binary")

AT_ONCE = 3
"""Most of a run is waiting for Prometheus's beat, so a few go side by side."""


class Judged(NamedTuple):
    """What ``argus diagnose`` said about a trace."""

    status: int
    out: str
    err: str

    @property
    def verdict(self) -> Any:
        return json.loads(self.out)


def late(factor: float) -> list[dict[str, Any]]:
    """Four ranks, eight iterations; in the second half rank 3 takes ``factor`` times as long."""
    return [
        row(rank, n, "forward", n * 10.0, 2.0 * (factor if rank == 3 and n >= 4 else 1.0), kind="compute")
        for n in range(8)
        for rank in range(4)
    ]


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Judged]]:
    """Judges all traces of this module; answers by name."""
    folder = tmp_path_factory.mktemp("traces")
    traces = [CASES / "slow-worker.parquet", DATA / "rotating.csv.gz", CASES / "long-last-stage.parquet"]
    traces += [DATA / "two-stragglers.csv.gz", write_csv(folder / "doubled.csv", late(2.0))]
    traces += [write_csv(folder / "third.csv", late(1.35))]

    def judge(path: Path) -> Judged:
        command = [sys.executable, "-m", "argus.cli", "diagnose", "--json", "--quiet", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240)
        return Judged(done.returncode, done.stdout, done.stderr)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        runs = {path.name.split(".")[0]: pool.submit(judge, path) for path in traces if path.exists()}
        yield lambda name: runs[name].result()


def accused(verdict: Any) -> set[tuple[str, ...]]:
    """(alert, rank or role, phase) of what fired."""
    return {
        (a["labels"]["alertname"], a["labels"].get("rank", a["labels"].get("role", "")),
         a["labels"].get("phase", ""))
        for a in verdict["alerts"]
    }  # fmt: skip


def test_slow_worker(judged: Callable[[str], Judged]) -> None:
    case("slow-worker.parquet")
    status, verdict = judged("slow-worker").status, judged("slow-worker").verdict
    assert status == 1
    assert accused(verdict) == {
        ("ArgusComputeStraggler", "0", "forward-compute"),
        ("ArgusComputeStraggler", "0", "backward-compute"),
    }
    assert (verdict["run_id"], verdict["ranks"], verdict["iterations"]) == ("slow-worker", 16, 44)
    first = verdict["alerts"][0]
    assert first["labels"]["severity"] == "critical"
    # The window of four is full with the fourth recorded iteration, and the rank is slow from the start.
    assert first["first_iteration"] == 29
    assert {"summary", "description", "runbook_url"} <= set(first["annotations"])
    assert verdict["undecided"] == []
    # Published what-if analysis: 1.97.
    assert verdict["slowdown"] == pytest.approx(1.97, rel=0.05)


def test_long_last_stage(judged: Callable[[str], Judged]) -> None:
    case("long-last-stage.parquet")
    status, verdict = judged("long-last-stage").status, judged("long-last-stage").verdict
    assert status == 1
    assert accused(verdict) == {("ArgusStageImbalance", "pp3", "")}
    # Published what-if analysis: 1.18.
    assert verdict["slowdown"] == pytest.approx(1.18, rel=0.05)


def test_two_stragglers_among_eight(judged: Callable[[str], Judged]) -> None:
    verdict = judged("two-stragglers").verdict
    assert judged("two-stragglers").status == 1
    assert accused(verdict) == {
        ("ArgusComputeStraggler", rank, phase) for rank in "25" for phase in ("forward", "backward")
    }
    assert all(alert["first_iteration"] == 3 for alert in verdict["alerts"])
    # Both computed 1.8 (0.6 + 1.2) s where 1.8 s was normal; the rest is 0.27 s for everybody.
    assert verdict["slowdown"] == pytest.approx((1.8 * 1.8 + 0.27) / (1.8 + 0.27), rel=0.03)
    # Their excess over the median, in ten iterations, times eight ranks.
    assert verdict["lost_gpu_hours"] == pytest.approx(0.8 * 1.8 * 10 * 8 / 3600, rel=0.05)


def test_healthy_accuses_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["diagnose", str(DATA / "healthy.csv.gz")])
    said = capsys.readouterr()
    assert status == 0
    assert "Verdict: nobody is accused." in said.out
    assert "Run healthy: 8 ranks, 10 iterations (0 to 9)." in said.out


def test_rotating_imbalance_accuses_no_rank(judged: Callable[[str], Judged]) -> None:
    verdict = judged("rotating").verdict
    assert judged("rotating").status == 1
    assert {name for name, _, _ in accused(verdict)} == {"ArgusWorkImbalance"}
    assert verdict["slowdown"] is None


def test_a_fault_in_the_last_window_is_decided_where_two_looks_do(judged: Callable[[str], Judged]) -> None:
    """The second look is there for ranks that are scraped late, and here nobody is."""
    verdict = judged("doubled").verdict
    assert judged("doubled").status == 1
    assert accused(verdict) == {("ArgusComputeStraggler", "3", "forward")}
    assert [alert["first_iteration"] for alert in verdict["alerts"]] == [7]


def test_a_small_fault_in_the_last_window_is_undecided(judged: Callable[[str], Judged]) -> None:
    verdict = judged("third").verdict
    assert judged("third").status == 2
    assert verdict["alerts"] == []
    assert {alert["labels"]["rank"] for alert in verdict["undecided"]} == {"3"}


def test_the_kineto_pair_is_too_short_and_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    folder = case("kineto/rank-0.json.gz").parent
    status = main(["diagnose", "--json", "--quiet", str(folder)])
    said = capsys.readouterr()
    assert status == 2
    assert "can't judge: no rank has more than 2 iterations" in said.err
    document = json.loads(said.out)
    assert document["read"]["0"]["iterations"] == [551, 552]
    ops = {item["op"]: item["count"] for item in document["read"]["0"]["collectives"]}
    assert ops == {"all_to_all": 4, "all_reduce": 4, "all_gather": 2}
    assert document["read"]["0"]["collectives"][0]["seconds"] == pytest.approx(0.182403)


def test_keep_leaves_what_prometheus_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [row(rank, number, "forward", number, 0.5) for number in range(4) for rank in range(3)]
    path = write_csv(tmp_path / "short.csv", rows)
    kept = tmp_path / "kept"
    assert main(["diagnose", "--json", "--keep", str(kept), str(path)]) == 0
    assert json.loads(capsys.readouterr().out)["alerts"] == []
    assert {"prometheus.yml", "rules", "data"} <= {item.name for item in kept.iterdir()}
    assert main(["diagnose", "--keep", str(kept), str(path)]) == 2
    assert "needs a new folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nowhere.csv"], "nowhere.csv: No such file"),
        (["--prometheus", "/nonexistent", str(DATA / "healthy.csv.gz")], "/nonexistent"),
    ],
)
def test_what_it_can_not_use_is_said(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diagnose", *arguments]) == 2
    assert says in capsys.readouterr().err


def test_without_prometheus_it_says_how_to_get_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("ARGUS_PROMETHEUS", raising=False)
    assert main(["diagnose", str(DATA / "healthy.csv.gz")]) == 2
    said = capsys.readouterr().err
    assert "apt install prometheus" in said
    assert "--prometheus PATH" in said


def test_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    command = [
        sys.executable,
        "-m",
        "argus.cli",
        "diagnose",
        "--keep",
        str(kept),
        str(DATA / "rotating.csv.gz"),
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    try:
        deadline = time.monotonic() + 30
        while not (kept / "data" / "wal").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        pids = [int(pid) for pid in children.read_text().split()]
        assert pids
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=20)
        assert process.returncode == 130
        assert said.endswith("argus diagnose: interrupted\n")
        assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    finally:
        process.kill()
        process.communicate()


def test_ranks_without_a_window_can_not_be_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [row(rank, 3 * rank + n, "forward", n, 0.5) for rank in range(3) for n in range(3)]
    assert main(["diagnose", "--quiet", str(write_csv(tmp_path / "short.csv", rows))]) == 2
    said = capsys.readouterr()
    assert "no rank has more than 3 iterations" in said.err
    assert "rank 2 (pp0): 3 iterations (6 to 8)" in said.out
