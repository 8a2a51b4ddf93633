"""Small HTTP servers that alerts are delivered to: at the end of a webhook, or in Alertmanager's place."""

from __future__ import annotations

import json
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

MAX_BODY_BYTES = 64 << 20


@dataclass(frozen=True)
class Delivery:
    """One request's JSON body and the time of its arrival (``time.time``)."""

    payload: Any
    received: float


class _Receiver(ABC):
    """Collects the JSON bodies POSTed to one path of 127.0.0.1 on a port of the kernel's choice."""

    path = "/"

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._deliveries: list[Delivery] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 30

            def do_POST(self) -> None:
                receiver._serve(self)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False  # Alertmanager keeps its connections open
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        self.url = f"http://{self.address}{self.path}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="argus-receiver", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening; what was received stays readable."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Any:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def deliveries(self) -> list[Delivery]:
        """Everything received until now, oldest first."""
        with self._changed:
            return list(self._deliveries)

    def wait(self, predicate: Callable[[Any], bool], timeout: float) -> Delivery | None:
        """First delivery, past or future, whose payload satisfies ``predicate``; None after ``timeout`` s."""
        deadline = time.monotonic() + timeout
        seen = 0
        with self._changed:
            while True:
                for delivery in self._deliveries[seen:]:
                    if predicate(delivery.payload):
                        return delivery
                seen = len(self._deliveries)
                left = deadline - time.monotonic()
                if left <= 0:
                    return None
                self._changed.wait(left)

    @abstractmethod
    def _accept(self, payload: Any) -> bool:
        """Whether the payload has the right shape."""

    def _serve(self, request: BaseHTTPRequestHandler) -> None:
        try:
            length = int(request.headers.get("Content-Length", ""))
        except ValueError:
            length = -1
        if request.path != self.path or not 0 <= length <= MAX_BODY_BYTES:
            request.close_connection = True
            return _answer(request, 404 if request.path != self.path else 400)
        try:
            payload = json.loads(request.rfile.read(length))
        except ValueError:
            return _answer(request, 400)
        if not self._accept(payload):
            return _answer(request, 400)
        with self._changed:
            self._deliveries.append(Delivery(payload, time.time()))
            self._changed.notify_all()
        _answer(request, 200)


def _answer(request: BaseHTTPRequestHandler, status: int) -> None:
    request.send_response(status)
    request.send_header("Content-Length", "0")
    request.end_headers()


class WebhookReceiver(_Receiver):
    """The end of Alertmanager's webhook: a payload is one notification (``status``, ``alerts``, …)."""

    path = "/webhook"

    def __enter__(self) -> WebhookReceiver:
        return self

    def _accept(self, payload: Any) -> bool:
        return isinstance(payload, dict) and isinstance(payload.get("alerts"), list)


class AlertReceiver(_Receiver):
    """Stands in Alertmanager's place (API v2): a payload is the list of alerts of one request.

    Prometheus delivers here what it would deliver to Alertmanager: each alert
    has ``labels``, ``annotations``, ``startsAt``, ``endsAt`` and
    ``generatorURL``.  Point ``alerting.alertmanagers`` at ``address``.
    """

    path = "/api/v2/alerts"

    def __enter__(self) -> AlertReceiver:
        return self

    def alerts(self) -> list[dict[str, Any]]:
        """The latest state of every alert received, in the order of their first arrival."""
        latest: dict[tuple[tuple[str, str], ...], dict[str, Any]] = {}
        for delivery in self.deliveries:
            for alert in delivery.payload:
                latest[tuple(sorted(alert["labels"].items()))] = alert
        return list(latest.values())

    def _accept(self, payload: Any) -> bool:
        return isinstance(payload, list) and all(
            isinstance(alert, dict) and isinstance(alert.get("labels"), dict) for alert in payload
        )
