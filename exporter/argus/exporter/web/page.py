"""A response."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

HTML_TYPE = "text/html; charset=utf-8"
PLAIN_TYPE = "text/plain; charset=utf-8"


@dataclass(frozen=True)
class Page:
    """A response; ``compress``: whether compressing it makes it smaller."""

    status: int
    content_type: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    compress: bool = True


def plain(status: int, text: str, headers: Mapping[str, str] | None = None) -> Page:
    """A page of text."""
    return Page(status, PLAIN_TYPE, f"{text}\n".encode("utf-8", "replace"), headers or {})
