"""Traces, and whatever else there is, from the exporters of other nodes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import urlsplit

import requests

from argus.flight.model import RankTrace
from argus.flight.perfetto.parse import MAX_BYTES, TraceError, parse

_TIMEOUT_S = (10, 120)
"""To connect, and between two parts of the answer."""


class FetchError(Exception):
    """An exporter did not give what it was asked for; the message names it and says why."""


class NotThereError(FetchError):
    """The exporter answered 404; its ``said`` and ``headers`` tell what that means."""

    def __init__(self, url: str, said: str, headers: Mapping[str, str]) -> None:
        super().__init__(f"{url}: answered 404: {said}")
        self.url, self.said, self.headers = url, said, headers


def fetch(
    url: str,
    run_id: str | None,
    ranks: Iterable[int] | None,
    iterations: str | None,
    *,
    ca_file: str | None = None,
    client_cert: str | None = None,
) -> list[RankTrace]:
    """Ask an exporter for its ranks among these; none where it has none of them.

    Passwords come from the URL or from ``~/.netrc``.

    Raises:
        FetchError: It can't be reached, refuses, or answers with something else.
    """
    query: list[tuple[str, str]] = [("rank", str(rank)) for rank in sorted(ranks or ())]
    query += [("run_id", run_id)] if run_id is not None else []
    query += [("iterations", iterations)] if iterations is not None else []
    try:
        content = get(url, "/trace", query, ca_file=ca_file, client_cert=client_cert)
    except NotThereError as error:
        if error.headers.get("X-Argus-Trace") == "none":
            return []
        raise FetchError(
            f"{error.url}: no traces there; an older exporter, or one with --flight.trace=false?"
        ) from None
    try:
        return parse(content)
    except TraceError as error:
        raise FetchError(f"{_shown(url)}: {error}") from None


def get(
    url: str,
    path: str,
    query: Sequence[tuple[str, str]],
    *,
    ca_file: str | None = None,
    client_cert: str | None = None,
) -> bytes:
    """What an exporter has at a path. Passwords come from the URL or from ``~/.netrc``.

    Raises:
        FetchError: It can't be reached or refuses; a ``NotThereError`` where it answers 404.
    """
    if "://" not in url:
        url = f"http://{url}"
    shown = _shown(url)
    try:
        with requests.get(
            url.rstrip("/") + path,
            params=list(query),
            timeout=_TIMEOUT_S,
            stream=True,
            verify=ca_file or True,
            cert=client_cert,
        ) as answer:
            content = _read(answer)
    except (requests.RequestException, OSError) as error:
        raise FetchError(f"{shown}: {_reason(error)}") from None
    said = content.decode("utf-8", "replace").strip()[:500]
    if answer.status_code == 404:
        raise NotThereError(shown, said, answer.headers)
    if answer.status_code == 401:
        raise FetchError(
            f"{shown}: answered 401: it wants a password, in the URL or in ~/.netrc, or another one"
        )
    if answer.status_code != 200:
        raise FetchError(f"{shown}: answered {answer.status_code}: {said}")
    return content


def _shown(url: str) -> str:
    """Without its password."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _read(answer: requests.Response) -> bytes:
    parts, size = [], 0
    for part in answer.iter_content(1 << 20):
        size += len(part)
        if size > MAX_BYTES:
            raise OSError(f"more than {MAX_BYTES >> 20} MiB, which is no trace of ours")
        parts.append(part)
    return b"".join(parts)


def _reason(error: Exception) -> str:
    # requests wraps urllib3's "Max retries exceeded", which wraps "HTTPConnection(host=…): what happened".
    cause = getattr(error.args[0], "reason", None) if error.args else None
    text = " ".join(str(error if cause is None else cause).split())
    text = re.sub(r"^HTTPS?Connection\([^)]*\): ", "", text)
    return text if len(text) < 300 else f"{text[:300]}…"
