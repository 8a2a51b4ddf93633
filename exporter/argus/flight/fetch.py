"""Traces from the exporters of other nodes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import urlsplit

import requests

from argus.flight.model import RankTrace
from argus.flight.perfetto.parse import MAX_BYTES, TraceError, parse

_TIMEOUT_S = (10, 120)
"""To connect, and between two parts of the answer."""


class FetchError(Exception):
    """An exporter did not give its trace; the message names it and says why."""


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
    if "://" not in url:
        url = f"http://{url}"
    shown = urlsplit(url)._replace(netloc=urlsplit(url).netloc.rpartition("@")[2]).geturl()
    query: list[tuple[str, str]] = [("rank", str(rank)) for rank in sorted(ranks or ())]
    query += [("run_id", run_id)] if run_id is not None else []
    query += [("iterations", iterations)] if iterations is not None else []
    try:
        with requests.get(
            url.rstrip("/") + "/trace",
            params=query,
            timeout=_TIMEOUT_S,
            stream=True,
            verify=ca_file or True,
            cert=client_cert,
        ) as answer:
            content = _read(answer)
    except (requests.RequestException, OSError) as error:
        raise FetchError(f"{shown}: {_reason(error)}") from None
    if answer.status_code == 404 and answer.headers.get("X-Argus-Trace") == "none":
        return []
    if answer.status_code == 404:
        raise FetchError(f"{shown}: no traces there; an older exporter, or one with --flight.trace=false?")
    if answer.status_code == 401:
        raise FetchError(
            f"{shown}: answered 401: it wants a password, in the URL or in ~/.netrc, or another one"
        )
    if answer.status_code != 200:
        said = content.decode("utf-8", "replace").strip()[:500]
        raise FetchError(f"{shown}: answered {answer.status_code}: {said}")
    try:
        return parse(content)
    except TraceError as error:
        raise FetchError(f"{shown}: {error}") from None


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
