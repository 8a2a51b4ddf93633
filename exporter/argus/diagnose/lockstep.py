"""A private Prometheus that sees one more iteration with every evaluation, neither more nor less.

Scrapes and evaluations keep Prometheus's own real-time beat of one interval.  A
page is shown only after the previous one has been evaluated, and every page is
evaluated exactly once; where the machine is too slow for that the run is begun
again with a longer interval.  So the verdict does not depend on the machine.

One interval stands for a nominal minute: the rules are the shipped ones,
rendered for a scrape interval of one minute and then compressed.  Their groups
are joined into one, so that every evaluation sees one instant.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from argus import ruleset
from argus.diagnose.pages import BEAT, numbered
from argus.prometheus import Prometheus, QueryError

NOMINAL_MINUTE = 60.0
DONE = "argus_replay:beat:done"
"""Recorded last of all rules: the page that this evaluation has seen."""

_PATIENCE = 120.0
"""Seconds without any progress after which Prometheus is given up."""
_ANSWER_WITHIN = 0.8
"""Part of the interval in which a scrape must be answered, so that it never fails."""


class LostBeatError(Exception):
    """The machine did not keep up with the interval."""


class StalledError(Exception):
    """Prometheus stopped scraping or evaluating."""


AlertKey = tuple[tuple[str, str], ...]


@dataclass
class Alert:
    """An alert through the run; beats count pages from 1.

    Attributes:
        labels, annotations: As Alertmanager would get them, latest firing first.
        since: Beat since which its condition holds, without a break, or held before it fired.
        fired: Beat at which it fired first; None: it never did.
        active: Its condition holds at the last beat.
    """

    labels: dict[str, str]
    annotations: dict[str, str]
    since: int
    fired: int | None = None
    active: bool = True


@dataclass
class History:
    """Alerts by their labels, followed from beat to beat."""

    alerts: dict[AlertKey, Alert] = field(default_factory=dict)

    def take(self, beat: int, current: list[dict[str, Any]]) -> None:
        """Take in what ``/api/v1/alerts`` says after the evaluation of a beat."""
        seen = set()
        for item in current:
            key = tuple(sorted(item["labels"].items()))
            seen.add(key)
            alert = self.alerts.get(key)
            if alert is None:
                alert = self.alerts[key] = Alert(item["labels"], item["annotations"], beat)
            elif not alert.active and alert.fired is None:
                alert.since = beat
            alert.active = True
            if item["state"] == "firing":
                alert.fired = alert.fired or beat
                alert.annotations = item["annotations"]
        for key, alert in self.alerts.items():
            if key not in seen:
                alert.active = False


def configuration(address: str, interval_ms: int) -> str:
    """Prometheus's configuration: one target, and the rules beside it."""
    every = f"{interval_ms}ms"
    return yaml.safe_dump(
        {
            "global": {"scrape_interval": every, "scrape_timeout": every, "evaluation_interval": every},
            "rule_files": ["rules/*.yml"],
            "scrape_configs": [{"job_name": "argus", "static_configs": [{"targets": [address]}]}],
        }
    )


def joined_rules(interval_ms: int) -> str:
    """The shipped rules as one group, each after what it reads, and the mark at the end."""
    files = ruleset.render(scrape_interval=NOMINAL_MINUTE, time_scale=interval_ms / 1000 / NOMINAL_MINUTE)
    groups = [group for text in files.values() for group in yaml.safe_load(text)["groups"]]
    rules = [rule for group in _ordered(groups) for rule in group["rules"]]
    rules.append({"record": DONE, "expr": f"max({BEAT})"})
    return ruleset.dump({"groups": [{"name": "argus", "interval": f"{interval_ms}ms", "rules": rules}]})


def _ordered(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Groups after those whose recorded series they read; a circle keeps the files' order."""
    left, ordered = list(groups), []
    while left:
        records = {id(g): [r["record"] for r in g["rules"] if "record" in r] for g in left}

        def needs(group: dict[str, Any], records: dict[int, list[str]] = records) -> bool:
            texts = [rule["expr"] for rule in group["rules"]]
            others = [name for key, names in records.items() if key != id(group) for name in names]
            return any(name in text for name in others for text in texts)

        chosen = next((group for group in left if not needs(group)), left[0])
        ordered.append(chosen)
        left.remove(chosen)
    return ordered


class _QuietServer(ThreadingHTTPServer):
    """Keeps silent about scrapes that Prometheus gave up, as it does when it is stopped."""

    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Show:
    """Serves the current page; a scrape waits for a new one as long as it may."""

    def __init__(self, interval: float) -> None:
        self._changed = threading.Condition()
        self._page = b""
        self._fresh = False
        self.repeated = 0
        show = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 60

            def do_GET(self) -> None:
                page = show._next(time.monotonic() + _ANSWER_WITHIN * interval)
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(page)))
                self.end_headers()
                self.wfile.write(page)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = _QuietServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def show(self, page: bytes) -> None:
        """From now on this is the page."""
        with self._changed:
            self._page, self._fresh = page, True
            self._changed.notify_all()

    def _next(self, deadline: float) -> bytes:
        with self._changed:
            while not self._fresh:
                left = deadline - time.monotonic()
                if left <= 0:
                    self.repeated += 1
                    break
                self._changed.wait(left)
            self._fresh = False
            return self._page

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def run(
    pages: Iterator[tuple[int, bytes]],
    interval_ms: int,
    binary: Path,
    directory: Path | None,
    progress: Callable[[int], None],
) -> tuple[History, list[int]]:
    """Show every page, and the last one once more.

    The page that is repeated lets alerts complete whose condition must hold at
    two evaluations; that is there for scrapes at different moments, which don't
    exist here.

    Args:
        pages: (iteration, page).
        interval_ms: Milliseconds between scrapes, and between evaluations.
        binary: Prometheus.
        directory: Where it works, left behind; None: a temporary folder, removed.
        progress: Told the number of pages evaluated.

    Returns:
        The alerts' history, and the iterations in the order of beats.

    Raises:
        LostBeatError: Begin again with a longer interval.
        StalledError: Prometheus does not go on.
        argus.prometheus.StartError: It did not start.
    """
    interval = interval_ms / 1000
    show = _Show(interval)
    flags = [
        f"--query.lookback-delta={5 * interval_ms}ms",
        "--storage.tsdb.retention.time=10d",
    ]
    try:
        iteration, page = next(pages)
        show.show(numbered(page, 1))
        rules = {"argus.yml": joined_rules(interval_ms)}
        config = configuration(show.address, interval_ms)
        with Prometheus(config, rules, binary=binary, directory=directory, flags=flags) as prometheus:
            history, iterations = History(), [iteration]
            for beat in range(1, 1 << 62):
                following = next(pages, None)
                _await(prometheus, show, beat, interval)
                history.take(beat, prometheus.client.alerts())
                progress(beat)
                if following is None:
                    if beat > len(iterations):
                        return history, iterations
                else:
                    iterations.append(following[0])
                    page = following[1]
                show.show(numbered(page, beat + 1))
    finally:
        show.close()
    raise AssertionError("unreachable")


def _await(prometheus: Prometheus, show: _Show, beat: int, interval: float) -> None:
    """Wait until the page of ``beat`` has been evaluated, and once only."""
    # One query: the last page seen, and how many evaluations have seen any.
    query = f'{DONE} or label_replace(count_over_time({DONE}[10d]), "of", "evaluations", "", "")'
    deadline = time.monotonic() + max(_PATIENCE, 20 * interval)
    while True:
        try:
            samples = prometheus.client.query(query)
        except QueryError as error:
            raise StalledError(f"Prometheus does not answer: {error}\n{prometheus.tail()}") from error
        done = next((int(s.value) for s in samples if "of" not in s.labels), 0)
        evaluations = next((int(s.value) for s in samples if "of" in s.labels), 0)
        if evaluations > done or show.repeated:
            raise LostBeatError
        if done == beat:
            return
        if prometheus.poll() is not None or time.monotonic() > deadline:
            raise StalledError(f"Prometheus stopped evaluating the rules:\n{prometheus.tail()}")
        time.sleep(min(0.05, interval / 20))
