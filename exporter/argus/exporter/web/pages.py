"""What is served at which path."""

from __future__ import annotations

import html
from collections.abc import Callable

from argus.exporter.exposition.classic import Classic
from argus.exporter.exposition.negotiate import choose
from argus.exporter.flight.pages import FlightPages
from argus.exporter.registry import Registry
from argus.exporter.stacks.pages import StackPages
from argus.exporter.web.page import HTML_TYPE, Page, plain

_LANDING = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>ARGUS exporter</title>
<style>body {{ font-family: sans-serif; max-width: 40em; margin: 2em auto; padding: 0 1em; line-height: 1.5 }}
@media (prefers-color-scheme: dark) {{ body {{ background: #111; color: #eee }} a {{ color: #9cf }} }}</style>
</head>
<body>
<h1>ARGUS exporter</h1>
<p>Serves the training ranks of this node to Prometheus. Version {version}.</p>
<ul>
<li><a href="{telemetry}">Metrics</a></li>
{more}<li><a href="/-/healthy">Health</a></li>
<li><a href="/-/ready">Readiness</a></li>
</ul>
</body>
</html>
"""


class Pages:
    """The exporter's pages.

    Args:
        registry: What ``telemetry_path`` shows.
        telemetry_path: Where the metrics are.
        classic: Which histograms carry classic buckets.
        version: For the landing page.
        flight: What there is of flight recorders; None: nothing.
        stacks: What there is of stacks; None: nothing.
        ready: Whether segments have been looked for once.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        telemetry_path: str,
        classic: Classic,
        version: str,
        flight: FlightPages | None = None,
        stacks: StackPages | None = None,
        ready: Callable[[], bool] = lambda: True,
    ) -> None:
        self.telemetry_path = telemetry_path
        self._registry = registry
        self._classic = classic
        self._flight = flight
        self._more = [each for each in (flight, stacks) if each is not None]
        self._ready = ready
        links = {name: path for each in self._more for name, path in each.links.items()}
        landing = _LANDING.format(
            version=html.escape(version),
            telemetry=html.escape(telemetry_path),
            more="".join(f'<li><a href="{path}">{name}</a></li>\n' for name, path in links.items()),
        )
        self._landing = Page(200, HTML_TYPE, landing.encode())

    def get(self, path: str, query: str, accept: str) -> Page:
        """The page at ``path`` in the format that the Accept header asks for; 404 where there is none."""
        if path == self.telemetry_path:
            format_ = choose(accept)
            return Page(200, format_.content_type, format_.encode(self._registry.collect(), self._classic))
        if path == "/":
            return self._landing
        if path == "/-/healthy":
            return plain(200, "Healthy")
        if path == "/-/ready":
            return plain(200, "Ready") if self._ready() else plain(503, "Not ready")
        pages = (each.get(path, query) for each in self._more)
        return next((page for page in pages if page is not None), None) or plain(404, "Not found")

    def takes(self, path: str) -> bool:
        """Whether something can be posted there."""
        return self._flight is not None and self._flight.takes(path)

    def post(self, body: bytes) -> Page:
        """Take what was posted where that is possible."""
        assert self._flight is not None
        return self._flight.post(body)
