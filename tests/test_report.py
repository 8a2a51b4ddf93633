"""The report: what it says, how it looks in a real browser, and what it says when it can't."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="matplotlib is not installed (pip install argus-gpu[report])")
pytest.importorskip("playwright", reason="playwright is not installed (pip install argus-gpu[test])")

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser

from argus.cli import main
from argus.prometheus import Prometheus
from argus.report.gather import choose_moment
from argus.report.heat import by_phase, by_place, excess, heat
from argus.report.model import (
    Axis,
    Collective,
    Comparison,
    Course,
    Document,
    Finding,
    Mark,
    PhaseTable,
    Ranks,
)
from argus.report.page import render
from argus.report.span import SpanError, moment, span
from argus.report.words import expand, grouped, numbers, seconds, verdict
from browser_support import browser, opened
from traces_support import row, write_csv

RUN = 'run <b>"7"</b> $x$'
PHASE = "fwd</title><script>alert(1)</script>"


def _trace(path: Path) -> Path:
    """Four ranks, ten iterations; rank 2 takes 3 s instead of 1 s in a phase with an evil name."""
    noise = random.Random(5)
    rows = []
    for iteration in range(10):
        own = {rank: (3.0 if rank == 2 else 1.0) * noise.gauss(1, 0.01) for rank in range(4)}
        begin, last = 10.0 * iteration, max(own.values())
        for rank in range(4):
            more = {"run_id": RUN, "role": "pp0"}
            rows.append(row(rank, iteration, PHASE, begin, own[rank], kind="compute", **more))
            rows.append(
                row(
                    rank, iteration, "all_reduce", begin + own[rank], last - own[rank] + 0.1,
                    kind="communication", op="all_reduce", group="dp", group_id="dp-0", members=4, **more,
                )
            )  # fmt: skip
    return write_csv(path, rows)


@pytest.fixture(scope="module")
def diagnosed(tmp_path_factory: pytest.TempPathFactory, prometheus_binary: Path) -> Path:
    """The page that ``argus diagnose`` writes."""
    folder = tmp_path_factory.mktemp("report")
    done = subprocess.run(
        [
            sys.executable, "-m", "argus.cli", "diagnose", _trace(folder / "trace.csv"),
            "--report", folder / "page.html", "--prometheus", prometheus_binary, "--quiet",
        ],
        capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    return folder / "page.html"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as running:
        yield running


def _document(stages: int, replicas: int, slow: set[int] = frozenset()) -> Document:  # type: ignore[assignment]
    """Ranks pp * replicas + dp, 1 s of mlp, 3 s on slow ones, which are accused; 4 s an iteration."""
    count = stages * replicas
    mlp = np.array([3.0 if rank in slow else 1.0 for rank in range(count)])
    ranks = Ranks(
        numbers=[str(rank) for rank in range(count)],
        roles=[f"pp{rank // replicas}" for rank in range(count)],
        nodes=[f"node{rank // 8}" for rank in range(count)],
        places={
            "pp": np.arange(count) // replicas, "dp": np.arange(count) % replicas,
            **{name: np.full(count, -1) for name in ("tp", "cp", "ep")},
        },
        iteration=np.full(count, 4.0),
        busy=mlp,
        communication=4.0 - mlp,
    )  # fmt: skip
    findings = [
        Finding(
            {
                "alertname": "ArgusComputeStraggler", "severity": "critical", "run_id": "big",
                "rank": str(rank), "role": f"pp{rank // replicas}", "phase": "mlp",
            },
            since=1_700_000_300.0, until=None, summary=f"Rank {rank} is slow", description="Three times.",
            runbook="https://wiki.example.org/ArgusComputeStraggler.md",
            dashboard="https://grafana.example.org/d/argus-rank?var-rank=1",
        )
        for rank in sorted(slow)
    ]  # fmt: skip
    times = np.arange(1_700_000_000.0, 1_700_000_600.0, 15)
    phases = PhaseTable(["mlp"], ["compute"], mlp[:, None], np.ones((count, 1)))
    return Document(
        run_id="big", source="a test", axis=Axis(times[0], times[-1], 15.0), moment=times[-1],
        verdict=verdict(findings), findings=findings, world_size=count,
        iteration=Course(times, np.full(len(times), 4.0)), slowest=Course(times, np.full(len(times), 4.2)),
        ranks=ranks, phases=phases,
        collectives=[Collective("reduce_scatter", "dp", 4.0 - mlp)],
        comparisons=[
            Comparison("Phase mlp", mlp, [Mark(f"rank {rank}", 2.9, 3.0, 3.2) for rank in sorted(slow)])
        ],
        lost_gpu_hours=12.5, notes=["nothing"],
    )  # fmt: skip


@pytest.fixture(params=["diagnosed", "masked", "healthy"])
def page(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, int]:
    """A page, and how many pictures are on it."""
    if request.param == "diagnosed":
        # Iteration time, heatmap, the phase against its peers, who waits.
        return request.getfixturevalue("diagnosed"), 4
    slow: set[int] = set(range(352, 360)) if request.param == "masked" else set()
    path = tmp_path / "page.html"
    path.write_text(render(_document(3, 300, slow)), "utf-8")
    return path, 4


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_in_a_browser(chromium: Browser, page: tuple[Path, int], scheme: str) -> None:
    path, pictures = page
    with opened(chromium, path, scheme) as (tab, watch):
        found = Axe().run(tab)
        drawn = tab.locator("figure > svg")
        sizes = [drawn.nth(i).bounding_box() for i in range(drawn.count())]
        shapes = tab.evaluate(
            "() => [...document.querySelectorAll('figure > svg')]"
            ".map(s => [...s.querySelectorAll('path, image, use')]"
            ".filter(e => { const b = e.getBoundingClientRect(); return b.width + b.height > 0 }).length)"
        )
        wide = tab.evaluate("() => document.documentElement.scrollWidth - innerWidth")
        tab.emulate_media(media="print")
        printed = tab.evaluate("() => getComputedStyle(document.body).backgroundColor")
    assert watch.complaints == []
    assert [url for url in watch.requests if not url.startswith(("file:", "data:"))] == []
    assert found.violations_count == 0, found.generate_report()
    assert len(sizes) == pictures
    assert all(size and size["width"] > 600 and size["height"] > 80 for size in sizes)
    assert all(count >= 10 for count in shapes), shapes
    assert wide <= 0
    assert printed == "rgb(255, 255, 255)"


def test_keyboard_order(chromium: Browser, tmp_path: Path) -> None:
    """Tab goes through the page from top to bottom, and shows where it is."""
    path = tmp_path / "page.html"
    path.write_text(render(_document(1, 8, {3})), "utf-8")
    with opened(chromium, path, "light") as (tab, _):
        stops = []
        for _ in range(20):
            tab.keyboard.press("Tab")
            at = tab.evaluate(
                "() => { const e = document.activeElement; const s = getComputedStyle(e);"
                " return e === document.body ? null : [e.textContent.trim().slice(0, 40),"
                " e.getBoundingClientRect().top + scrollY, s.outlineStyle] }"
            )
            if at is None:
                break
            stops.append(at)
        tab.keyboard.press("Shift+Tab")
    assert [text for text, _, _ in stops[:3]] == [
        "Skip to the verdict",
        "runbook ArgusComputeStraggler",
        "dashboard of rank 3",
    ]
    tops = [top for _, top, _ in stops[1:]]
    assert tops == sorted(tops)
    assert len(stops) >= 5
    assert all(outline != "none" for _, _, outline in stops)


def test_what_diagnose_writes(diagnosed: Path) -> None:
    text = diagnosed.read_text("utf-8")
    assert "<script" not in text
    assert "Rank 2 is slow in phase fwd&lt;/title&gt;&lt;script&gt;alert(1)&lt;/script&gt;." in text
    assert "run &lt;b&gt;" in text
    # 1.1 s of 3.1 s: half of the iteration, 2 s of 3.1 s, is beyond the peers' second.
    assert "64." in text
    assert "argus rules --runbook ArgusComputeStraggler" in text


def test_heatmaps() -> None:
    """Seconds beyond the peers' in percent of the iteration: 2 s of 4 s."""
    small = _document(1, 8, {3})
    assert excess(small)[:, 0].tolist() == [0, 0, 0, 50, 0, 0, 0, 0]
    assert heat(small).row_title == "rank"
    assert by_phase(small).marked == [(3, 0)]
    large = _document(9, 1440, set(range(10352, 10360)))  # the paper's case: pp 7, dp 272 to 279
    grid = heat(large)
    assert grid.joined == 6
    assert grid.values.shape == (9, 240)
    assert grid.marked == [(7, 45), (7, 46)]
    assert np.argwhere(grid.values == 50).tolist() == [[7, 45], [7, 46]]
    assert int(np.nansum(grid.values > 0)) == 2
    assert by_place(large, large.collectives[0].seconds, "median").values[7, 45] == 1.0


def test_ranks_without_coordinates_stand_in_rows() -> None:
    document = _document(1, 130, {129})
    document.ranks.places["dp"][:] = -1
    grid = heat(document)
    assert grid.values.shape == (3, 64)
    assert grid.marked == [(2, 1)]


@pytest.mark.parametrize(
    ("template", "value", "text"),
    [
        ("Rank {{ $labels.rank }} of {{ $labels.run_id }}", None, "Rank 7 of a b"),
        ('{{ $value | printf "%.2f" }} times', 2.2649, "2.26 times"),
        ("loses {{ $value | humanizePercentage }}", 0.1234, "loses 12.34%"),
        ("x?r={{ $labels.run_id | urlquery }}", None, "x?r=a+b"),
        ("{{ $value }} ranks", 12.0, "12 ranks"),
        ("{{ $value }} ranks", None, None),
        ("{{ with query }}x{{ end }}", 1.0, None),
    ],
)
def test_annotations_of_the_past(template: str, value: float | None, text: str | None) -> None:
    """As Prometheus's documentation of templates has it."""
    assert expand(template, {"rank": "7", "run_id": "a b"}, value) == text


def test_words() -> None:
    assert numbers(["3", "8", "9", "10", "2"]) == "2-3, 8-10"
    assert seconds(0.0123) == "12.3 ms"
    assert seconds(2.5e-7) == "250 ns"
    assert seconds(4000) == "4000 s"
    assert verdict([]) == "Nobody is accused."
    labels = {"alertname": "ArgusHostStall", "run_id": "r", "role": "pp0"}
    found = [
        Finding({**labels, "severity": severity, "rank": rank, "phase": phase}, 0.0, None, "s")
        for severity, rank, phase in (
            ("critical", "1", "gc"), ("critical", "2", "gc"), ("critical", "1", "data_loading"),
            ("warning", "2", "data_loading"), ("warning", "1", "gc"),
        )
    ]  # fmt: skip
    assert verdict(found) == "Ranks 1-2 are slow in phases data_loading and gc."
    assert [[f.labels["phase"] for f in group] for group in grouped(found)] == [["gc", "data_loading"]] * 2


def test_the_moment_is_one_at_which_the_ranks_are_there() -> None:
    """A run that is leaving when the range ends is shown as it was while it was whole."""
    axis = Axis(0.0, 100.0, 10.0)
    iteration = Course(np.arange(0.0, 101.0, 10), np.ones(11))
    whole = Course(iteration.times, np.full(11, 8.0))
    leaving = Course(iteration.times, np.array([8.0] * 8 + [7.0, 3.0, 2.0]))
    finding = Finding({"alertname": "A", "severity": "critical"}, 20.0, 60.0, "s")
    assert choose_moment([], iteration, whole, axis) == 100
    assert choose_moment([finding], iteration, whole, axis) == 60
    assert choose_moment([], iteration, leaving, axis) == 70
    assert choose_moment([finding], iteration, leaving, axis) == 60


def test_ranges() -> None:
    assert moment("2026-03-01T02:40:00Z") == 1772332800
    assert moment("2026-03-01T03:40:00+01:00") == moment("2026-03-01T02:40:00")
    axis = span("1000", "1600", None)
    assert (axis.start, axis.end, axis.step) == (1000, 1600, 5)
    assert abs(span(None, None, "1d").end - time.time()) < 60
    for wrong in (("5", "4", None), ("yesterday", None, None), (None, None, "soon"), ("1", None, "1h")):
        with pytest.raises(SpanError):
            span(*wrong)


def test_errors_say_what_to_do(
    tmp_path: Path, prometheus_binary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = str(tmp_path / "page.html")
    ask = ["report", "--run-id", "none", "-o", page, "--quiet", "--prometheus"]
    assert main([*ask, "http://127.0.0.1:1"]) == 2
    assert "http://127.0.0.1:1/api/v1/query" in capsys.readouterr().err
    with Prometheus("scrape_configs: []\n", {}, binary=prometheus_binary) as prometheus:
        assert main([*ask, prometheus.url]) == 1
    assert "has no run at all in this range" in capsys.readouterr().err
    assert main([*ask, "http://127.0.0.1:1", "--from", "x"]) == 2
    assert "'x' is no time" in capsys.readouterr().err
    assert not Path(page).exists()
