"""Ask a Prometheus everything that the dashboards ask, and time it.

Variables get values as Grafana gives them: each from its own query, unless told
otherwise.  ``python -m benchmarks.panel_queries URL`` prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from argus.prometheus import Client

FOLDER = Path(__file__).parent.parent / "dashboards" / "json"
POINTS = 240
"""Points of a panel over time: about half the pixels of its width on a usual screen."""
SCRAPE = 15.0
"""Seconds between scrapes, unless told otherwise."""

Values = Mapping[str, str | list[str]]
"""What variables stand for; a list where a variable can have several values."""


@dataclass(frozen=True)
class PanelQuery:
    """One query of a panel.

    Attributes:
        dashboard: The dashboard's uid.
        panel: The panel's title.
        ref: The query's letter.
        expr: PromQL with Grafana's variables.
        now: Whether one moment is asked, instead of a range.
        points: How many points the panel can show.
    """

    dashboard: str
    panel: str
    ref: str
    expr: str
    now: bool
    points: int

    def __str__(self) -> str:
        return f"{self.dashboard} / {self.panel} / {self.ref}"


@dataclass(frozen=True)
class Times:
    """The time range that is shown, and the scrape interval (all in seconds)."""

    start: float
    end: float
    scrape: float = SCRAPE

    def step(self, query: PanelQuery) -> float:
        """As Grafana chooses it: the range in as many points as fit, but no shorter than a scrape."""
        return max((self.end - self.start) / query.points, self.scrape)


def load(folder: Path = FOLDER) -> list[dict[str, Any]]:
    """The generated dashboards."""
    return [json.loads(path.read_text("utf-8")) for path in sorted(folder.glob("*.json"))]


def queries(dashboard: Mapping[str, Any]) -> Iterator[PanelQuery]:
    """Every query of its panels."""
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            yield PanelQuery(
                dashboard["uid"], panel["title"], target["refId"], target["expr"], target["instant"],
                panel.get("maxDataPoints", POINTS),
            )  # fmt: skip


def resolve(client: Client, dashboard: Mapping[str, Any], given: Values, times: Times) -> dict[str, Any]:
    """Values of all its variables: those given, otherwise what Grafana would choose.

    Raises:
        argus.prometheus.QueryError: With Prometheus's own words.
    """
    values: dict[str, Any] = dict(given)
    for variable in dashboard["templating"]["list"]:
        name = variable["name"]
        if name in values or variable["type"] in ("datasource", "adhoc"):
            continue
        if variable["type"] != "query":
            values[name] = variable["current"]["value"]
            continue
        found = options(client, variable, values, times)
        values[name] = found if variable["includeAll"] else (found or [""])[0]
    return values


def options(client: Client, variable: Mapping[str, Any], values: Values, times: Times) -> list[str]:
    """What a variable offers."""
    query = substitute(variable["query"]["query"], values, times)
    if labels := re.fullmatch(r"label_values\((.+), (\w+)\)", query, re.DOTALL):
        found = client.query(f"count by ({labels[2]}) ({labels[1]})", times.end)
        return sorted({sample.labels[labels[2]] for sample in found if labels[2] in sample.labels})
    result = re.fullmatch(r"query_result\((.+)\)", query, re.DOTALL)
    assert result is not None, query
    lines = [_line(sample.labels) for sample in client.query(result[1], times.end)]
    taken = (re.search(variable["regex"].strip("/"), line) for line in lines)
    return [match[1] for match in taken if match]


def _line(labels: Mapping[str, str]) -> str:
    """A result as Grafana writes it for a variable's regular expression."""
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}"


def substitute(expr: str, values: Values, times: Times) -> str:
    """PromQL without Grafana's variables."""
    built_in = {
        "__rate_interval": _duration(4 * times.scrape),
        "__range": _duration(times.end - times.start),
    }

    def value(match: re.Match[str]) -> str:
        name = match[1]
        if name in built_in:
            return built_in[name]
        if name not in values:
            return match[0]  # such as $1, which PromQL itself understands
        meant = values[name]
        if isinstance(meant, str):
            return meant.replace("\\", "\\\\").replace('"', '\\"')
        return "(" + "|".join(re.escape(each).replace("\\", "\\\\") for each in meant) + ")"

    return re.sub(r"\$(\w+)", value, expr)


def ask(client: Client, query: PanelQuery, values: Values, times: Times) -> int:
    """Ask one query as its panel does; the number of series that come back.

    Raises:
        argus.prometheus.QueryError: With Prometheus's own words.
    """
    expr = substitute(query.expr, values, times)
    if query.now:
        return len(client.query(expr, times.end))
    return len(client.query_range(expr, times.start, times.end, times.step(query)))


def measure(
    url: str,
    given: Values | None = None,
    *,
    span: float = 3600.0,
    end: float | None = None,
    scrape: float = SCRAPE,
    rounds: int = 3,
) -> list[dict[str, Any]]:
    """Time every query of every panel.

    Args:
        url: Prometheus.
        given: Values of variables, such as ``run_id`` and ``rank``.
        span: Seconds shown.
        end: Unix time of the end; by default now.
        scrape: Seconds between scrapes.
        rounds: How often each is asked; the fastest counts.

    Returns:
        For each query its place, the seconds it took, and the series that came back, slowest first.
    """
    client = Client(url, timeout=120.0)
    end = time.time() if end is None else end
    times = Times(end - span, end, scrape)
    rows = []
    try:
        for dashboard in load():
            values = resolve(client, dashboard, given or {}, times)
            for query in queries(dashboard):
                seconds, series = float("inf"), 0
                for _ in range(rounds):
                    begin = time.perf_counter()
                    series = ask(client, query, values, times)
                    seconds = min(seconds, time.perf_counter() - begin)
                rows.append({"query": str(query), "seconds": round(seconds, 4), "series": series})
    finally:
        client.close()
    return sorted(rows, key=lambda row: row["seconds"], reverse=True)


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The whole in a few figures: seconds by dashboard, the slowest queries, the most series."""
    dashboards: dict[str, float] = {}
    for row in rows:
        uid = row["query"].partition(" / ")[0]
        dashboards[uid] = round(dashboards.get(uid, 0.0) + row["seconds"], 3)
    return {
        "queries": len(rows),
        "seconds_by_dashboard": dashboards,
        "slowest": rows[:10],
        "most_series": max(rows, key=lambda row: row["series"]),
        "without_data": sorted(row["query"] for row in rows if not row["series"]),
    }


def _duration(seconds: float) -> str:
    return f"{max(1, round(seconds * 1000))}ms"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.panel_queries", description=__doc__)
    parser.add_argument("url", metavar="URL", help="address of a Prometheus with ARGUS's rules")
    parser.add_argument(
        "--range", type=float, default=3600.0, metavar="S", help="seconds shown (default: 3600)"
    )
    parser.add_argument("variables", nargs="*", metavar="NAME=VALUE", help="such as run_id=llm rank=12")
    args = parser.parse_args()
    given: dict[str, str | list[str]] = dict(pair.split("=", 1) for pair in args.variables)
    json.dump(summary(measure(args.url, given, span=args.range)), sys.stdout, indent=2)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
