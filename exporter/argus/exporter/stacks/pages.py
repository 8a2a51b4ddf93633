"""The paths ``/stacks``: dumps of hung runs, and the stacks that ranks sample."""

from __future__ import annotations

import html
import threading
from collections.abc import Sequence
from urllib.parse import parse_qs, quote

from argus import _native
from argus.exporter.flight.store import Store
from argus.exporter.sources import RankSource, merge
from argus.exporter.web.page import HTML_TYPE, PLAIN_TYPE, Page, plain
from argus.flight.select import SelectError, record
from argus.stacks.render import FORMATS, RenderError, render

_FIELDS = ("run_id", "rank", "format")
_JSON = "application/json"

_LISTING = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Stacks</title>
<style>body {{ font-family: sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; line-height: 1.5 }}
td, th {{ text-align: left; padding-right: 1.5em }}
@media (prefers-color-scheme: dark) {{ body {{ background: #111; color: #eee }} a {{ color: #9cf }} }}</style>
</head>
<body>
<h1>Stacks</h1>
<h2>When runs stood still</h2>
<p>Taken from outside, by py-spy, when no rank of a run made progress on this node; newest first.</p>
{dumps}
<h2>Ranks of this node</h2>
<p>What their Python threads did in the last minutes, as they sample it themselves. The flame graph is a
file for <a href="https://www.speedscope.app">speedscope.app</a>, which reads it in the browser and sends it
nowhere.</p>
{ranks}
</body>
</html>
"""


class StackPages:
    """Answers for ``/stacks`` and what is below.

    Args:
        sources: Where ranks are.
        store: Where dumps are; None: none are taken.
    """

    def __init__(self, sources: Sequence[RankSource], store: Store | None) -> None:
        self._sources = sources
        self._store = store
        self._one = threading.Lock()

    @property
    def links(self) -> dict[str, str]:
        """Paths for the landing page, by what they lead to."""
        return {"Stacks of the ranks, and of runs that stood still": "/stacks"}

    def get(self, path: str, query: str) -> Page | None:
        """The page at the path; None where there is none."""
        if path == "/stacks":
            return self._listing()
        if path == "/stacks/now":
            return self._now(query)
        if path.startswith("/stacks/") and self._store is not None:
            content = self._store.read(path.removeprefix("/stacks/"))
            if content is not None:
                return Page(200, PLAIN_TYPE, content)
        return None

    def _now(self, query: str) -> Page:
        try:
            fields = parse_qs(query, keep_blank_values=True, strict_parsing=bool(query), max_num_fields=10)
            unknown = fields.keys() - set(_FIELDS)
            if unknown:
                raise ValueError(f"{min(unknown)[:40]!r} is not known; there are {', '.join(_FIELDS)}")
            format_ = fields.get("format", ["text"])[-1]
            if format_ not in FORMATS:
                raise ValueError(f"the format is one of {', '.join(FORMATS)}")
            number = fields["rank"][-1] if "rank" in fields else None
            if number is not None and not (number.isascii() and number.isdigit() and len(number) < 10):
                raise ValueError("a rank is a whole number")
        except ValueError as error:
            return plain(400, str(error))
        if not self._one.acquire(blocking=False):
            return plain(503, "Another one is being read; ask again")
        try:
            run_id = fields["run_id"][-1] if "run_id" in fields else None
            ranks = None if number is None else {int(number)}
            found = record(self._sources, run_id, ranks, _native.monotonic_ns())
            content = render(found, format_).encode("utf-8", "replace")
        except (SelectError, RenderError) as error:
            return plain(404, str(error), {"X-Argus-Stacks": "none"})
        finally:
            self._one.release()
        if format_ != "speedscope":
            return Page(200, PLAIN_TYPE, content)
        disposition = f'attachment; filename="rank{number or ""}.speedscope.json"'
        return Page(200, _JSON, content, {"Content-Disposition": disposition})

    def _listing(self) -> Page:
        found = merge(source.scan(_native.monotonic_ns()) for source in self._sources).ranks
        rows = []
        for rank in found:
            identity = rank.state.identity
            query = f"run_id={quote(identity.run_id, safe='')}&amp;rank={identity.rank}"
            links = " ".join(
                f'<a href="/stacks/now?{query}&amp;format={format_}">{label}</a>'
                for format_, label in (("text", "text"), ("speedscope", "flame graph"))
            )
            shown = links if rank.state.stack_interval_ns else "not sampled"
            rows.append(
                f"<tr><td>{html.escape(identity.run_id)}</td><td>{identity.rank}</td><td>{shown}</td></tr>"
            )
        ranks = _table("<th>run</th><th>rank</th><th>last minutes</th>", rows)
        if self._store is None:
            dumps = "<p>They are off (--stacks.dumps).</p>"
        else:
            dumps = _table(
                "<th>time</th><th>run and ranks</th><th>size</th>",
                [
                    f'<tr><td>{each.written}</td><td><a href="/stacks/{quote(each.name)}">'
                    f"{html.escape(each.about)}</a></td><td>{each.bytes / 1024:,.0f} KiB</td></tr>"
                    for each in self._store.kept()
                ],
            )
        return Page(200, HTML_TYPE, _LISTING.format(dumps=dumps, ranks=ranks).encode("utf-8", "replace"))


def _table(head: str, rows: list[str]) -> str:
    if not rows:
        return "<p>None so far.</p>"
    return f"<table>\n<tr>{head}</tr>\n" + "\n".join(rows) + "\n</table>"
