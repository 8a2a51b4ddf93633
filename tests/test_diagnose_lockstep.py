"""Lock-step with Prometheus: order of the rules, alerts through the beats, pages, and beats that are lost."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from argus import ruleset
from argus.diagnose import lockstep
from argus.diagnose.history import History
from argus.diagnose.pages import Pages
from argus.diagnose.verdict import accusations
from argus.traces import load
from traces_support import DATA, row, write_csv


def test_all_rules_are_there_each_after_what_it_reads() -> None:
    [group] = yaml.safe_load(lockstep.joined_rules(250))["groups"]
    shipped = [
        rule
        for text in ruleset.load().values()
        for g in yaml.safe_load(text)["groups"]
        for rule in g["rules"]
    ]
    assert len(group["rules"]) == len(shipped) + 1
    assert group["rules"][-1]["record"] == lockstep.DONE
    assert group["interval"] == "250ms"
    critical = next(r for r in group["rules"] if r.get("alert") == "ArgusComputeStraggler")
    assert critical["for"] == "250ms"  # one scrape
    warning = [r for r in group["rules"] if r.get("alert") == "ArgusComputeStraggler"][1]
    assert ruleset.parse_duration(warning["for"]) >= 1  # never less than four scrapes


def alert(state: str, **labels: str) -> dict[str, Any]:
    return {"labels": labels, "annotations": {"summary": state}, "state": state}


def test_alerts_through_the_beats() -> None:
    history = History()
    a, b, c = {"alertname": "A", "severity": "critical"}, {"alertname": "B", "severity": "warning"}, {
        "alertname": "C", "severity": "warning"}  # fmt: skip
    history.take(1, [alert("pending", **a)])
    history.take(2, [])  # gone: what comes later is new
    history.take(3, [alert("pending", **a), alert("pending", **b)])
    history.take(4, [alert("firing", **a), alert("pending", **b), alert("pending", **c)])
    history.take(5, [alert("pending", **c)])
    fired, undecided = accusations(history, [10, 20, 30, 40])
    assert [(x.name, x.first_iteration, x.annotations) for x in fired] == [("A", 30, {"summary": "firing"})]
    assert [(x.name, x.first_iteration) for x in undecided] == [("C", 40)]


def test_liveness_is_not_judged() -> None:
    history = History()
    history.take(1, [alert("firing", alertname="ArgusRanksMissing", severity="critical")])
    assert accusations(history, [1]) == ([], [])


def series(page: bytes, name: str) -> dict[str, float]:
    lines = [line for line in page.decode().splitlines() if line.startswith(name + "{")]
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


def test_pages_hold_windows_of_what_was_recorded() -> None:
    table, _ = load([str(DATA / "two-stragglers.csv.gz")])
    with table:
        pages = Pages(table)
        made = list(pages)
        pages.close()
        assert [number for number, _ in made] == list(range(10))
        assert not series(made[2][1], "argus_window_iterations")
        assert set(series(made[3][1], "argus_window_iterations").values()) == {4.0}
        assert set(series(made[9][1], "argus_iteration_age_seconds").values()) == {0.0}
        # The fastest of the window's iterations, straight from the rows.
        last = [table.read(number) for number in (6, 7, 8, 9)]
        code = next(i for i, phase in enumerate(table.phases) if phase.name == "backward")
        fastest = min(
            float(r["duration"]) for rows in last for r in rows if r["rank"] == 2 and r["phase"] == code
        )
        found = [
            value
            for key, value in series(made[9][1], "argus_window_phase_seconds").items()
            if 'rank="2"' in key and 'phase="backward"' in key and 'quantile="0.0"' in key
        ]
        assert found == [pytest.approx(fastest, abs=1e-6)]


def test_a_rank_that_stops_early_is_not_shown_frozen(tmp_path: Path) -> None:
    rows = [row(rank, n, "forward", n, 0.5) for n in range(8) for rank in range(2) if rank == 0 or n < 4]
    table, _ = load([str(write_csv(tmp_path / "t.csv", rows))])
    with table:
        pages = Pages(table)
        ranks = [len(series(page, "argus_rank_up")) for _, page in pages]
        pages.close()
    assert ranks == [2, 2, 2, 2, 2, 1, 1, 1]


def test_a_page_that_comes_too_late_is_a_lost_beat(prometheus_binary: Path) -> None:
    import threading

    def pages() -> Iterator[tuple[int, bytes]]:
        yield 1, b""
        yield 2, b""
        threading.Event().wait(1.0)  # longer than four intervals
        yield 3, b""

    with pytest.raises(lockstep.LostBeatError):
        lockstep.run(pages(), 250, prometheus_binary, None, lambda beat: None)


def test_every_page_is_evaluated_once(each_prometheus: Path, tmp_path: Path) -> None:
    beats: list[int] = []
    pages = iter([(number, b"") for number in (5, 6, 7, 8)])
    history, order = lockstep.run(pages, 1000, each_prometheus, tmp_path, beats.append)
    assert order == [5, 6, 7, 8]
    assert beats == [1, 2, 3, 4, 5]  # the last one is shown once more
    assert not [a for a in history.alerts.values() if a.fired]


def test_a_full_disk_is_said_at_once(
    prometheus_binary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    statvfs = os.statvfs

    def full(path: Path) -> os.statvfs_result:
        values = list(statvfs(path))
        values[3] = 0  # f_bfree
        return os.statvfs_result(values)

    monkeypatch.setattr(os, "statvfs", full)
    with pytest.raises(lockstep.StalledError, match=r"is full.*TMPDIR"):
        lockstep.run(iter([(0, b"")]), 200, prometheus_binary, tmp_path / "full", lambda _: None)
