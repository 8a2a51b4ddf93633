"""The paths of the flight recorder: ``/trace``, ``/alerts`` and ``/snapshots``."""

from __future__ import annotations

import html
import threading
from collections.abc import Sequence
from urllib.parse import parse_qs, quote

from argus import _native
from argus.exporter.flight.alerts import PayloadError
from argus.exporter.flight.receiver import BusyError, Receiver
from argus.exporter.sources import RankSource
from argus.exporter.web.page import HTML_TYPE, Page, plain
from argus.flight.perfetto.write import encode
from argus.flight.range import RangeError, parse, parse_ranks
from argus.flight.recording import traces
from argus.flight.select import SelectError, record

_BINARY = "application/octet-stream"
_FIELDS = ("run_id", "rank", "ranks", "iterations")

_LISTING = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Snapshots of flight recorders</title>
<style>body {{ font-family: sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; line-height: 1.5 }}
td, th {{ text-align: left; padding-right: 1.5em }}
@media (prefers-color-scheme: dark) {{ body {{ background: #111; color: #eee }} a {{ color: #9cf }} }}</style>
</head>
<body>
<h1>Snapshots</h1>
<p>What accused ranks of this node and up to two of their peers did when an alert came, newest first.
Download one and open it at <a href="https://ui.perfetto.dev">ui.perfetto.dev</a>.</p>
{content}
</body>
</html>
"""


class FlightPages:
    """Answers for the flight recorder's paths.

    Args:
        sources: Where ranks are.
        trace: Whether ``/trace`` is served.
        receiver: Takes alerts; None: neither alerts nor snapshots are served.
    """

    def __init__(self, sources: Sequence[RankSource], *, trace: bool, receiver: Receiver | None) -> None:
        self._sources = sources
        self._trace = trace
        self._receiver = receiver
        self._one = threading.Lock()

    @property
    def links(self) -> dict[str, str]:
        """Paths for the landing page, by what they lead to."""
        links = {"Trace of all ranks, for Perfetto": "/trace"} if self._trace else {}
        return links | ({"Snapshots taken when alerts came": "/snapshots"} if self._receiver else {})

    def get(self, path: str, query: str) -> Page | None:
        """The page at the path; None where there is none."""
        if path == "/trace" and self._trace:
            return self._trace_page(query)
        if path == "/snapshots" and self._receiver is not None:
            return self._listing(self._receiver)
        if path.startswith("/snapshots/") and self._receiver is not None:
            content = self._receiver.store.read(path.removeprefix("/snapshots/"))
            if content is not None:
                return Page(200, _BINARY, content, compress=False)
        return None

    def takes(self, path: str) -> bool:
        """Whether something can be posted there."""
        return path == "/alerts" and self._receiver is not None

    def post(self, body: bytes) -> Page:
        """Take a delivery of alerts."""
        assert self._receiver is not None
        try:
            return plain(200, "\n".join(self._receiver.deliver(body)))
        except PayloadError as error:
            return plain(400, str(error))
        except BusyError:
            return plain(503, "Another snapshot is being taken; send it again")

    def _trace_page(self, query: str) -> Page:
        try:
            fields = parse_qs(query, keep_blank_values=True, strict_parsing=bool(query), max_num_fields=5000)
            unknown = fields.keys() - set(_FIELDS)
            if unknown:
                raise RangeError(f"{min(unknown)[:40]!r} is not known; there are {', '.join(_FIELDS)}")
            numbers = fields.get("rank", []) + fields.get("ranks", [])
            ranks = parse_ranks(numbers) if numbers else None
            wanted = parse(fields["iterations"][-1]) if "iterations" in fields else None
        except ValueError as error:
            return plain(400, str(error))
        if not self._one.acquire(blocking=False):
            return plain(503, "Another trace is being written; ask again")
        try:
            run_id = fields["run_id"][-1] if "run_id" in fields else None
            recordings = record(self._sources, run_id, ranks, _native.monotonic_ns())
            content = b"".join(encode(traces(recordings, wanted)))
        except (SelectError, RangeError) as error:
            return plain(404, str(error), {"X-Argus-Trace": "none"})
        finally:
            self._one.release()
        return Page(200, _BINARY, content, {"Content-Disposition": 'attachment; filename="argus.pftrace"'})

    @staticmethod
    def _listing(receiver: Receiver) -> Page:
        rows = [
            f"<tr><td>{each.written}</td>"
            f'<td><a href="/snapshots/{quote(each.name)}">{html.escape(each.alert)}</a></td>'
            f"<td>{html.escape(each.about)}</td><td>{each.bytes / 1024:,.0f} KiB</td></tr>"
            for each in receiver.store.kept()
        ]
        if rows:
            head = "<tr><th>time</th><th>alert</th><th>run and accused ranks</th><th>size</th></tr>"
            content = f"<table>\n{head}\n" + "\n".join(rows) + "\n</table>"
        else:
            content = "<p>None so far.</p>"
        return Page(200, HTML_TYPE, _LISTING.format(content=content).encode())
