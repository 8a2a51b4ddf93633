"""Reports of series that nobody expects: the page is written, and holds nobody's script."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs

import pytest

pytest.importorskip("matplotlib", reason="matplotlib is not installed (pip install argus-gpu[report])")

from argus.cli import main
from argus.prometheus import Client
from argus.report.command import write
from argus.report.gather import gather
from argus.report.model import Axis
from argus.report.span import SpanError, span
from argus.report.words import numbers, seconds

EVIL = (
    "</script><img src=x onerror=alert(1)>\"'\\{{7*7}}{% x %}$\\frac$ \u202e\u0000\n\U0001f600" + "y" * 3000
)
BEGIN = 1_700_000_000.0
AXIS = Axis(BEGIN, BEGIN + 600, 15.0)
LOGIN = "on call:p@ss/wörd"


@contextmanager
def _server(answer: Callable[[str], list[dict[str, Any]]]) -> Iterator[str]:
    """As much of Prometheus's API as a report asks for, below /prom and with a password; its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            fields = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            result = answer(fields["query"][0])
            kind = "matrix" if "step" in fields else "vector"
            self._reply({"status": "success", "data": {"resultType": kind, "result": result}})

        def do_GET(self) -> None:  # rules and alerts, which servers of series alone do not have
            self._reply(None)

        def _reply(self, body: dict[str, Any] | None) -> None:
            allowed = self.headers["Authorization"] == "Basic " + base64.b64encode(LOGIN.encode()).decode()
            status = (
                401 if not allowed else 404 if body is None or not self.path.startswith("/prom/") else 200
            )
            content = json.dumps(body).encode() if status == 200 else b"<html>no</html>"
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def _answers(
    ranks: list[str], value: str = "1", phase: str = "fwd", places: str = "0", accused: tuple[str, ...] = ()
) -> Callable[[str], list[dict[str, Any]]]:
    """What a Prometheus says that has these ranks, with ``value`` wherever there is one."""

    def instant(**labels: str) -> list[dict[str, Any]]:
        own = {"role": EVIL, "node": "$(reboot)", "pp": places, "dp": places, **labels}
        return [{"metric": {**own, "rank": rank}, "value": [BEGIN, value]} for rank in ranks]

    def course(numbers: list[str], **labels: str) -> dict[str, Any]:
        return {"metric": labels, "values": [[BEGIN + 15 * i, text] for i, text in enumerate(numbers)]}

    def answer(query: str) -> list[dict[str, Any]]:
        if query.startswith(("ALERTS{", "min_over_time(ALERTS_FOR_STATE")):
            return [
                course(
                    ["1"] * 4, alertname="ArgusComputeStraggler", severity=severity, rank=rank,
                    role=EVIL, phase=phase,
                )
                for rank in accused for severity in ("critical", "warning")
            ]  # fmt: skip
        if "unjudged" in query or 'kind="mixed"' in query:
            return []
        if query.startswith("max(run:"):
            return [course(["2", "NaN", value, "+Inf", "2"])]
        if "rank=" in query:
            return [{"metric": {"quantile": q}, "value": [BEGIN, value]} for q in ("0.0", "0.5", "1.0")]
        return instant(phase=phase, kind="compute", op=EVIL, group="dp")

    return answer


@pytest.mark.parametrize(
    "answer",
    [
        _answers(["0", "1", "2"], phase=EVIL, accused=("2",)),
        _answers(["a", "²", "٣", "-1", "7" * 40], accused=("a", "²", "7" * 40)),
        _answers(["0", "1"], value="NaN", accused=("1",)),
        _answers(["0", "1"], value="+Inf", accused=("1",)),
        _answers(["0", "1"], value="0", accused=("1",)),
        _answers(["0", "1"], value="-1"),
        _answers(["0"]),
        _answers([], accused=("1",)),
        _answers([str(rank) for rank in range(100)], value="NaN"),
        _answers([str(rank) for rank in range(100)], places="9" * 9),
        _answers([str(rank) for rank in range(600)], places="9" * 30, accused=tuple(map(str, range(500)))),
    ],
    ids=["names", "ranks", "nan", "inf", "zero", "negative", "one", "none", "nans", "far", "many"],
)
def test_a_page_comes_of_it(answer: Callable[[str], list[dict[str, Any]]], tmp_path: Path) -> None:
    with _server(answer) as address:
        client = Client(f"http://on%20call:p%40ss%2Fw%C3%B6rd@{address}/prom/")
        document = gather(client, EVIL, AXIS, f"Prometheus {client.url}")
        client.close()
    assert client.url == f"http://{address}/prom"
    write(document, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text("utf-8")
    for unwanted in ("p@ss", "p%40ss", "<script", "<img"):
        assert unwanted not in page
    assert max(float(width) for width in re.findall(r'viewBox="0 0 ([0-9.]+)', page)) < 1500
    if document.culprits and document.ranks.numbers and "trace --ranks" in page:
        assert "--exporter &#39;$(reboot):9733&#39;" in page


def test_what_a_server_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ask = ["report", "--run-id", "r", "--quiet", "-o", str(tmp_path / "page.html"), "--prometheus"]
    with _server(_answers(["0", "1"])) as address:
        assert main([*ask, f"{address}/prom"]) == 2
        assert "HTTP 401" in capsys.readouterr().err
        assert main([*ask, f"http://on%20call:p%40ss%2Fw%C3%B6rd@{address}/wrong"]) == 2
        said = capsys.readouterr().err
        assert "is its path prefix missing" in said
        assert "rd@" not in said
        good = f"http://on%20call:p%40ss%2Fw%C3%B6rd@{address}/prom"
        assert main([*ask[:4], "-o", str(tmp_path), "--prometheus", good]) == 2
        assert "directory" in capsys.readouterr().err
    with _server(
        lambda query: [{"metric": {"run_id": "x"}, "histogram": [1, {}], "histograms": []}]
    ) as address:
        assert main([*ask, f"http://on%20call:p%40ss%2Fw%C3%B6rd@{address}/prom"]) == 1
        assert "has no run at all" in capsys.readouterr().err
    assert main([*ask, "http://[::1"]) == 2
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_number() -> None:
    assert numbers(["b", "3", "²", "2", "4"]) == "2-4, b, ²"
    assert seconds(float("nan")) == "unknown"
    assert seconds(0) == "0 s"
    assert seconds(3e9) == "3e+09 s"
    for wrong in ("nan", "inf", "1e300", "-5"):
        with pytest.raises(SpanError):
            span(wrong, None, None)
