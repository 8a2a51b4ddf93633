"""Ask a Prometheus over its HTTP API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

import numpy as np
import numpy.typing as npt
import requests


class QueryError(RuntimeError):
    """Prometheus did not answer, or answered with an error."""


@dataclass(frozen=True)
class Sample:
    """One element of an instant vector."""

    labels: dict[str, str]
    value: float
    time: float


@dataclass(frozen=True)
class Course:
    """One element of a range vector: the values of a series and when it had them (Unix seconds)."""

    labels: dict[str, str]
    times: npt.NDArray[np.float64]
    values: npt.NDArray[np.float64]


class Client:
    """Client of one Prometheus; proxies of the environment are ignored.

    Attributes:
        url: Its address, without user and password.
    """

    def __init__(self, url: str, timeout: float = 30.0) -> None:
        """
        Args:
            url: Address with its path prefix, if any; ``http://user:password@host:9090`` for basic auth.
            timeout: Seconds that it may be silent.
        """
        self._timeout = timeout
        self._session = requests.Session()
        self._session.trust_env = False
        try:
            parts = urlsplit(url if "://" in url else f"http://{url}")
        except ValueError:  # asking it will say so
            self.url = url
            return
        user, at, host = parts.netloc.rpartition("@")
        if at:
            # requests writes what is no ASCII as Latin-1; Prometheus reads UTF-8.
            name, password = (unquote(part).encode().decode("latin-1") for part in user.partition(":")[::2])
            self._session.auth = (name, password)
        self.url = urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))

    def close(self) -> None:
        """Close its connections."""
        self._session.close()

    def query(self, expression: str, time: float | None = None) -> list[Sample]:
        """Instant vector of ``expression`` (a scalar is a vector of one sample without labels).

        Raises:
            QueryError: With Prometheus's own words.
        """
        parameters: dict[str, Any] = {"query": expression}
        if time is not None:
            parameters["time"] = f"{time:.3f}"
        data = self._get("/api/v1/query", parameters)
        if data["resultType"] == "scalar":
            return [Sample({}, float(data["result"][1]), float(data["result"][0]))]
        if data["resultType"] != "vector":
            raise QueryError(f"{expression!r} gives a {data['resultType']}, not an instant vector")
        return [
            Sample(row["metric"], float(row["value"][1]), float(row["value"][0]))
            for row in data["result"]
            if "value" in row  # else a native histogram
        ]

    def samples(self, selector: str) -> list[Course]:
        """The samples as they are stored that a range selector such as ``up[5m]`` finds.

        Raises:
            QueryError: With Prometheus's own words.
        """
        return _courses(self._get("/api/v1/query", {"query": selector})["result"])

    def query_range(self, expression: str, start: float, end: float, step: float) -> list[Course]:
        """The values of ``expression`` every ``step`` seconds from ``start`` to ``end`` (Unix seconds).

        Raises:
            QueryError: With Prometheus's own words.
        """
        parameters = {
            "query": expression,
            "start": f"{start:.3f}",
            "end": f"{end:.3f}",
            "step": f"{step:.3f}",
        }
        return _courses(self._get("/api/v1/query_range", parameters)["result"])

    def rules(self) -> list[dict[str, Any]]:
        """Rule groups as the API gives them: ``lastEvaluation``, ``evaluationTime``, ``rules``, …"""
        groups: list[dict[str, Any]] = self._get("/api/v1/rules", {})["groups"]
        return groups

    def targets(self) -> list[dict[str, Any]]:
        """Active scrape targets as the API gives them: ``health``, ``lastScrape``, ``lastError``, …"""
        targets: list[dict[str, Any]] = self._get("/api/v1/targets", {"state": "active"})["activeTargets"]
        return targets

    def alerts(self) -> list[dict[str, Any]]:
        """Pending and firing alerts as the API gives them."""
        alerts: list[dict[str, Any]] = self._get("/api/v1/alerts", {})["alerts"]
        return alerts

    def alertmanagers(self) -> list[str]:
        """URLs of the Alertmanagers that it has discovered and delivers to."""
        active = self._get("/api/v1/alertmanagers", {})["activeAlertmanagers"]
        return [alertmanager["url"] for alertmanager in active]

    def ready(self) -> bool:
        """Whether it answers and is ready."""
        try:
            return self._session.get(f"{self.url}/-/ready", timeout=5).status_code == 200
        except requests.RequestException:
            return False

    def _get(self, path: str, parameters: dict[str, Any]) -> Any:
        try:
            # POST where the API offers it: expressions outgrow a URL.
            if path in ("/api/v1/query", "/api/v1/query_range"):
                reply = self._session.post(self.url + path, data=parameters, timeout=self._timeout)
            else:
                reply = self._session.get(self.url + path, params=parameters, timeout=self._timeout)
        except (requests.RequestException, ValueError) as error:
            raise QueryError(f"{self.url}{path}: {error}") from error
        try:
            body = reply.json()
        except ValueError:
            body = None
        if not isinstance(body, dict) or not ("data" in body or "error" in body):
            raise QueryError(f"{self.url}{path}: {_no_answer(reply)}")
        if body.get("status") != "success":
            raise QueryError(f"{self.url}{path}: {body.get('errorType')}: {body.get('error')}")
        data = body.get("data")
        if not isinstance(data, dict):
            raise QueryError(f"{self.url}{path}: {_no_answer(reply)}")
        return data


def _no_answer(reply: requests.Response) -> str:
    """What is wrong with an answer that is none of Prometheus's API."""
    said = f"HTTP {reply.status_code} {reply.reason}".rstrip()
    if reply.status_code in (401, 403):
        return f"{said}; user and password are a part of the address: http://USER:PASSWORD@HOST:PORT"
    return f"{said}, and no answer of Prometheus; is its path prefix missing in the address?"


def _courses(rows: list[dict[str, Any]]) -> list[Course]:
    courses = []
    for row in rows:
        if not row.get("values"):  # native histograms only
            continue
        pairs = np.array(row["values"], dtype=np.float64)
        courses.append(Course(row["metric"], pairs[:, 0], pairs[:, 1]))
    return courses
