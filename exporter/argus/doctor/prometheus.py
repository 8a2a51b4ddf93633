"""Checks of Prometheus and Alertmanager, over their APIs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import requests

from argus import catalogue, ruleset
from argus.doctor.exporter import NoAnswerError, fetch, reason
from argus.doctor.finding import Finding, note, ok, problem
from argus.prometheus.client import Client, QueryError

_TIMEOUT_S = 5.0
_OLDEST = (2, 42)
_PACED_GROUP = "argus-l2-slow"
"""A group that is evaluated as often as ranks are scraped."""


def prometheus(url: str, exporter_url: str) -> Iterator[Finding]:
    """Whether it scrapes this node's exporter, has the rules, and fresh samples.

    Args:
        url: Its address.
        exporter_url: Where this node's exporter should be.
    """
    client = Client(url, timeout=_TIMEOUT_S)
    try:
        yield from _version(client)
        scraped, interval = _scraped(client, exporter_url)
        yield from scraped
        yield from _rules(client, interval)
        yield from _fresh(client, interval)
        yield from _native_histograms(client)
        if not client.alertmanagers():
            yield note("it delivers alerts to no Alertmanager", "see alerting: in examples/prometheus.yml")
    except QueryError as error:
        said = reason(error.__cause__) if error.__cause__ else str(error)
        yield problem(
            f"{client.url}: {said}", "check the address and the network; it must be Prometheus's own"
        )
    finally:
        client.close()


def _version(client: Client) -> Iterator[Finding]:
    build = client.query("prometheus_build_info")
    version = max((sample.labels.get("version", "") for sample in build), default="")
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers and numbers < _OLDEST:
        yield problem(f"{client.url}: Prometheus {version}", "the rules need 2.42 or newer (keep_firing_for)")
    else:
        yield ok(f"{client.url} answers{f', Prometheus {version}' if version else ''}")


def _scraped(client: Client, exporter_url: str) -> tuple[list[Finding], float | None]:
    """What is scraped, and the interval in seconds of this node's exporter, or of any."""
    targets = client.targets()
    known = {sample.labels.get("instance") for sample in client.query(catalogue.BUILD_INFO.name)}
    argus = [
        target for target in targets if target["labels"].get("instance") in known or _named_argus(target)
    ]
    mend = "add the exporters to scrape_configs (examples/prometheus.yml) and reload Prometheus"
    if not argus:
        return [problem("it scrapes no ARGUS exporter", mend)], None
    findings = [
        problem(f"scraping {target['scrapeUrl']} fails: {target['lastError']}", "check it with curl")
        for target in argus
        if target["health"] == "down"
    ][:5]
    intervals = [ruleset.parse_duration(each["scrapeInterval"]) for each in argus if "scrapeInterval" in each]
    interval = min(intervals, default=None)
    every = f" every {interval:g} s" if interval else ""
    findings.append(ok(f"it scrapes {len(argus)} ARGUS exporters{every}"))
    mine = _instance_of(client, exporter_url)
    if mine == "":
        findings.append(problem("this node's exporter is not among them, or was started just now", mend))
    elif mine is not None:
        findings.append(ok(f"this node's exporter is {mine}"))
    return findings, interval


def _named_argus(target: dict[str, Any]) -> bool:
    return "argus" in str(target["labels"].get("job", "")) or "argus" in str(target.get("scrapePool", ""))


def _instance_of(client: Client, exporter_url: str) -> str | None:
    """Under which name Prometheus scrapes this node's exporter; empty: it does not; None: there is none here.

    Known by the moment at which its process began, for addresses look different from elsewhere.
    """
    try:
        page = fetch(exporter_url)
    except NoAnswerError:
        return None
    began = next((each.value for each in page if each.name == "process_start_time_seconds"), None)
    if began is None:
        return None
    found = client.query(f"process_start_time_seconds == {began!r}")
    return found[0].labels.get("instance", "") if found else ""


def _rules(client: Client, interval: float | None) -> Iterator[Finding]:
    groups = client.rules()
    rules = [rule for group in groups for rule in group["rules"]]
    loaded = {rule["name"] for rule in rules if rule["type"] == "alerting"}
    shipped = {rule["alert"] for rule in ruleset.alerts()}
    missing = sorted(shipped - loaded)
    mend = "write them with argus rules --output DIR, name DIR/argus-*.yml in rule_files, reload Prometheus"
    if len(missing) == len(shipped):
        yield problem("ARGUS's rules are not loaded", mend)
        return
    if missing:
        yield problem(f"rules are missing: {', '.join(missing)}", f"they are of another version; {mend}")
    else:
        yield ok(f"all {len(shipped)} alerts are loaded")
    for group in groups:
        broken = [rule for rule in group["rules"] if rule.get("health") == "err"]
        if group["name"].startswith("argus") and broken:
            yield problem(
                f"group {group['name']}: {broken[0]['name']}: {broken[0].get('lastError')}",
                "compare the metrics of the exporters; please report it",
            )
    paced = next((group["interval"] for group in groups if group["name"] == _PACED_GROUP), None)
    if interval and paced and paced != interval:
        yield problem(
            f"rules are evaluated every {paced:g} s, ranks scraped every {interval:g} s",
            f"render them for it: argus rules --scrape-interval {interval:g}s --output DIR",
        )


def _fresh(client: Client, interval: float | None) -> Iterator[Finding]:
    ages = client.query(f"max(time() - timestamp({catalogue.RANK_UP.name}))")
    if not ages:
        yield note("it has no samples of ranks", "start a job with argus.init(), then look again")
        return
    age = ages[0].value
    if age > 3 * (interval or ruleset.NATIVE_INTERVAL):
        yield note(f"the oldest sample of a rank is {age:.0f} s old", "some exporter is not scraped any more")
    else:
        yield ok(f"samples of ranks are at most {age:.0f} s old")


def _native_histograms(client: Client) -> Iterator[Finding]:
    name = catalogue.ITERATION_SECONDS.name
    try:
        native = client.query(f"count(histogram_count({name}))")
    except QueryError:
        native = []
    if native and native[0].value:
        yield ok("it keeps native histograms")
    elif client.query(f"count({name}_count)"):
        yield note(
            "it keeps classic histograms only, which for phases and collectives have no buckets",
            "Prometheus 2: --enable-feature=native-histograms; 3: scrape_native_histograms: true where it "
            "scrapes them; or --histogram.classic=all on the exporters",
        )


def alertmanager(url: str) -> Iterator[Finding]:
    """Whether it answers and is settled; nothing is sent to it."""
    base = (url if "://" in url else f"http://{url}").rstrip("/")
    try:
        answer = requests.get(f"{base}/api/v2/status", timeout=_TIMEOUT_S)
        answer.raise_for_status()
        status = answer.json()
        version, cluster = status["versionInfo"]["version"], status["cluster"]["status"]
    except (requests.RequestException, ValueError, KeyError, TypeError) as error:
        yield problem(f"{base}: {reason(error)}", "check the address; it must be Alertmanager's own")
        return
    told = f"{base} answers, Alertmanager {version}, cluster {cluster}"
    yield ok(told) if cluster in ("ready", "disabled") else note(told, "its peers do not find each other")
