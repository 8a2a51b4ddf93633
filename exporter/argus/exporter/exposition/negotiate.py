"""Which format a scraper asks for, by its Accept header (RFC 9110, section 12.5.1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from argus.exporter.exposition import protobuf, text
from argus.exporter.exposition.classic import Classic
from argus.exporter.exposition.families import Family


@dataclass(frozen=True)
class Format:
    """A format and its content type."""

    content_type: str
    encode: Callable[[Sequence[Family], Classic], bytes]


TEXT = Format(text.TEXT_TYPE, lambda families, classic: text.encode(families, classic=classic))
OPENMETRICS = Format(text.OPENMETRICS_TYPE, lambda families, classic: text.encode(families, True, classic))
PROTOBUF = Format(protobuf.CONTENT_TYPE, protobuf.encode)


@dataclass(frozen=True)
class _Range:
    """One media range of an Accept header."""

    media: str
    quality: float
    parameters: dict[str, str] = field(default_factory=dict)


def choose(accept: str) -> Format:
    """The format that the header ranks highest; the first of equals, text where none fits."""
    ranges = sorted(_parse(accept), key=lambda item: -item.quality)
    return next((format_ for item in ranges if (format_ := _match(item)) is not None), TEXT)


def _parse(accept: str) -> list[_Range]:
    ranges = []
    for part in accept.split(","):
        media, *raw = (piece.strip().lower() for piece in part.split(";"))
        parameters = {}
        for piece in raw:
            name, _, value = piece.partition("=")
            parameters[name.strip()] = value.strip().strip('"')
        try:
            quality = float(parameters.pop("q", "1"))
        except ValueError:
            continue
        if media and 0 < quality <= 1:
            ranges.append(_Range(media, quality, parameters))
    return ranges


def _match(item: _Range) -> Format | None:
    if item.media == "application/vnd.google.protobuf":
        wanted = item.parameters.get("proto", "io.prometheus.client.metricfamily")
        encoding = item.parameters.get("encoding", "delimited")
        if wanted == "io.prometheus.client.metricfamily" and encoding == "delimited":
            return PROTOBUF
    elif item.media == "application/openmetrics-text":
        if item.parameters.get("version", "1.0.0") in ("0.0.1", "1.0.0"):
            return OPENMETRICS
    elif item.media == "text/plain":
        if item.parameters.get("version", "0.0.4") in ("0.0.4", "1.0.0"):
            return TEXT
    elif item.media in ("*/*", "text/*"):
        return TEXT
    return None
