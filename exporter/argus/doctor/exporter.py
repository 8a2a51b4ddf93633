"""Checks of the node's exporter, over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import requests
from prometheus_client.parser import text_string_to_metric_families

from argus import catalogue
from argus.doctor.finding import Finding, note, ok, problem
from argus.segment.files import DEFAULT_BASE
from argus.segment.layout import CONSTANTS

_TIMEOUT_S = 5.0


@dataclass(frozen=True)
class Series:
    """One sample of the exporter's page."""

    name: str
    labels: dict[str, str]
    value: float


class NoAnswerError(Exception):
    """The exporter did not show its metrics; the message says why."""


def fetch(url: str) -> list[Series]:
    """The exporter's metrics.

    Passwords come from the URL or from ``~/.netrc``.

    Args:
        url: With or without a path; the usual one is ``/metrics``.

    Raises:
        NoAnswerError: There are none.
    """
    try:
        answer = requests.get(page(url), timeout=_TIMEOUT_S, headers={"Accept": "text/plain;version=0.0.4"})
        answer.raise_for_status()
        families = list(text_string_to_metric_families(answer.text))
    except (requests.RequestException, ValueError) as error:
        raise NoAnswerError(reason(error)) from None
    return [
        Series(sample.name, dict(sample.labels), sample.value)
        for family in families
        for sample in family.samples
    ]


def page(url: str) -> str:
    """Address of the metrics, of an exporter named in whatever way."""
    url = url if "://" in url else f"http://{url}"
    return url if url.split("://", 1)[1].rstrip("/").count("/") else url.rstrip("/") + "/metrics"


def reason(error: BaseException) -> str:
    """Why a request failed, in words."""
    if isinstance(error, requests.ConnectionError):
        return "nobody answers there"
    if isinstance(error, requests.Timeout):
        return "no answer in time"
    return str(error)


def exporter(url: str, wanted: bool) -> Iterator[Finding]:
    """Whether it runs, fits this version, and sees ranks.

    Args:
        url: Where it should be.
        wanted: Whether the user named it; else it may be missing.
    """
    try:
        series = fetch(url)
    except NoAnswerError as error:
        level = problem if wanted else note
        yield level(
            f"{page(url)}: {error}", "start argus exporter on this node, or name it with --exporter URL"
        )
        return
    build = next((each for each in series if each.name == catalogue.BUILD_INFO.name), None)
    if build is None:
        yield problem(f"{page(url)} is not an ARGUS exporter", "name it with --exporter URL")
        return
    version, layout = build.labels["version"], build.labels["layout_version"]
    if layout != str(CONSTANTS["LAYOUT_VERSION"]):
        yield problem(
            f"the exporter (version {version}) reads segments of layout {layout}, ranks with this argus "
            f"write layout {CONSTANTS['LAYOUT_VERSION']}", "install the same version on both sides",
        )  # fmt: skip
    else:
        yield ok(f"{page(url)}: version {version}")
    yield from _segments(series)
    for each in series:
        if each.name == catalogue.COLLECTOR_SUCCESS.name and each.value == 0:
            yield problem(
                f"its collector {each.labels['collector']} fails", "the exporter's log has the reason"
            )


def _segments(series: list[Series]) -> Iterator[Finding]:
    states = {
        each.labels["state"]: int(each.value) for each in series if each.name == catalogue.SEGMENTS.name
    }
    alive = states.get("alive", 0)
    if alive:
        runs = {
            each.labels["run_id"] for each in series if each.name == catalogue.RANK_UP.name and each.value
        }
        yield ok(f"it sees {alive} ranks of {', '.join(sorted(runs))}")
    else:
        yield note(
            "it sees no rank",
            f"if ranks run here: do both sides have the same ARGUS_DIR ({DEFAULT_BASE} by default), and do "
            "their containers share it?",
        )
    for state, mend in (
        ("incompatible", "install the same version of argus in the job and in the exporter"),
        (
            "unreadable",
            "run the exporter as root, as the job's user or in its group; its log names the files",
        ),
        ("refused", "its log names the files, and why"),
    ):
        if states.get(state):
            yield problem(f"it can't use {states[state]} segments: {state}", mend)
