"""A real browser without a window."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright


@contextmanager
def browser() -> Iterator[Browser]:
    """The machine's Chromium; the test is skipped where there is none."""
    binary = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if binary is None:
        pytest.skip("Chromium is not installed (apt-get install chromium)")
    with sync_playwright() as play:
        running = play.chromium.launch(executable_path=binary, args=["--no-sandbox"])
        yield running
        running.close()


class Watch:
    """Opens a page and keeps what must not be there: console messages, errors, dialogs, requests."""

    def __init__(self, page: Page) -> None:
        self.complaints: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("dialog", self._dialog)

    def _dialog(self, dialog: object) -> None:
        self.complaints.append("a dialog opened")
        dialog.dismiss()  # type: ignore[attr-defined]


@contextmanager
def opened(running: Browser, path: Path, scheme: str) -> Iterator[tuple[Page, Watch]]:
    """A file in a page of its own; ``scheme`` is ``light`` or ``dark``."""
    context = running.new_context(color_scheme=scheme, viewport={"width": 1000, "height": 900})  # type: ignore[arg-type]
    page = context.new_page()
    watch = Watch(page)
    page.goto(path.as_uri())
    yield page, watch
    context.close()
