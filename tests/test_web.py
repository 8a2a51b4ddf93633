"""The web server: pages, methods, compression, limits, addresses."""

from __future__ import annotations

import gzip
import http.client
import socket
import threading
from contextlib import ExitStack

import pytest

from argus.exporter.registry import Registry
from argus.exporter.sources import Scan
from argus.exporter.web import connections, handler
from argus.exporter.web.server import AddressError, parse_address
from exporter_support import until
from web_support import request, serving


def test_pages() -> None:
    with serving() as server:
        response, body = request(server)
        assert response.status == 200
        assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert b'argus_rank_up{run_id="run",role="pp0",rank="0"} 1\n' in body
        response, body = request(server, "/metrics?format=x")
        assert response.status == 200
        response, body = request(server, "/")
        assert response.headers["Content-Type"].startswith("text/html")
        assert b'href="/metrics"' in body
        assert b"Version &lt;1&gt;" in body
        assert request(server, "/-/healthy")[1] == b"Healthy\n"
        assert request(server, "/-/ready")[1] == b"Ready\n"
        for path in ("/metric", "/metrics/", "/favicon.ico", "/-/", "/../metrics", "/%2e"):
            assert request(server, path)[0].status == 404


def test_not_ready_yet() -> None:
    with serving(ready=lambda: False) as server:
        assert request(server, "/-/ready")[0].status == 503
        assert request(server, "/-/healthy")[0].status == 200


def test_head_has_the_headers_of_get_and_no_body() -> None:
    with serving() as server:
        response, body = request(server, method="HEAD")
        expected, content = request(server)
        assert (response.status, body) == (200, b"")
        assert response.headers["Content-Length"] == expected.headers["Content-Length"] == str(len(content))


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "NONSENSE"])
def test_other_methods_are_refused(method: str) -> None:
    with serving() as server:
        response, _ = request(server, method=method)
        assert response.status == 405
        assert response.headers["Allow"] == "GET, HEAD"


def test_formats_by_accept() -> None:
    with serving() as server:
        response, body = request(server, headers={"Accept": "application/openmetrics-text;version=1.0.0"})
        assert response.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
        assert body.endswith(b"# EOF\n")
        response, body = request(
            server,
            headers={
                "Accept": "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;"
                "encoding=delimited;q=0.7,text/plain;q=0.3"
            },
        )
        assert response.headers["Content-Type"].startswith("application/vnd.google.protobuf")
        assert b"argus_rank_up" in body


def test_gzip_when_accepted() -> None:
    with serving() as server:
        plain = request(server)[1]
        response, body = request(server, headers={"Accept-Encoding": "deflate, gzip;q=0.5"})
        assert response.headers["Content-Encoding"] == "gzip"
        assert response.headers["Vary"] == "Accept-Encoding"
        assert gzip.decompress(body) == plain
        response, body = request(server, headers={"Accept-Encoding": "gzip;q=0"})
        assert response.headers["Content-Encoding"] is None
        assert body == plain


@pytest.mark.parametrize(
    ("header", "accepted"),
    [("", False), ("gzip", True), ("GZIP", True), ("*", True), ("br", False), ("gzip;q=x", False)],
)
def test_accept_encoding(header: str, accepted: bool) -> None:
    assert handler.accepts_gzip(header) is accepted


def test_connections_are_kept_and_a_body_ends_them() -> None:
    with serving() as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
        for _ in range(3):
            connection.request("GET", "/-/healthy")
            assert connection.getresponse().read() == b"Healthy\n"
        connection.request("GET", "/-/healthy", body=b"GET /metrics HTTP/1.1\r\n\r\n")
        response = connection.getresponse()
        assert response.headers["Connection"] == "close"
        connection.close()


@pytest.mark.parametrize(
    "junk", [b"\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", b"GET / HTTP/9.9\r\n\r\n", b"a" * 70_000]
)
def test_junk_harms_nobody(junk: bytes) -> None:
    with serving() as server:
        with socket.create_connection(("127.0.0.1", server.server_port), timeout=20) as connection:
            connection.sendall(junk)
        assert request(server, "/-/healthy")[0].status == 200


def test_too_many_requests_at_once_get_503() -> None:
    entered, leave = threading.Event(), threading.Event()

    class Slow:
        def scan(self, now_ns: int) -> Scan:
            entered.set()
            leave.wait(20)
            return Scan()

    with serving(registry=Registry(Slow()), max_requests=1) as server:
        first = threading.Thread(target=request, args=(server,))
        first.start()
        assert entered.wait(20)
        response, body = request(server)
        assert response.status == 503
        assert b"--web.max-requests" in body
        leave.set()
        first.join()
        until(lambda: request(server, "/-/healthy")[0].status == 200)


def test_an_internal_error_is_a_500_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as server:
        monkeypatch.setattr(Registry, "collect", lambda self: 1 / 0)
        response, body = request(server)
        assert response.status == 500
        assert b"ZeroDivision" not in body
        assert request(server, "/-/healthy")[0].status == 200


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (":9733", ("", 9733)),
        ("127.0.0.1:80", ("127.0.0.1", 80)),
        ("[::1]:0", ("::1", 0)),
        ("node-a:1", ("node-a", 1)),
    ],
)
def test_addresses(text: str, expected: tuple[str, int]) -> None:
    assert parse_address(text) == expected


@pytest.mark.parametrize("text", ["", "9733", "host", "::1:80", "host:x", "host:70000", "host:-1", ":٣"])
def test_bad_addresses(text: str) -> None:
    with pytest.raises(AddressError, match="address"):
        parse_address(text)


def test_an_address_in_use_says_so() -> None:
    with (
        serving() as server,
        pytest.raises(AddressError, match=r"can't listen on .*in use; choose another"),
        serving(address=f"127.0.0.1:{server.server_port}"),
    ):
        pass


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.skipif(not _has_ipv6(), reason="no IPv6 here")
def test_ipv6_and_all_addresses() -> None:
    with serving(address="[::1]:0") as server:
        assert server.url == f"http://[::1]:{server.server_port}/"
        with socket.create_connection(("::1", server.server_port), timeout=20):
            pass
    with serving(address=":0") as server:
        for host in ("::1", "127.0.0.1"):
            with socket.create_connection((host, server.server_port), timeout=20):
                pass


def test_clients_that_send_nothing_keep_nobody_out() -> None:
    """More of them than connections are allowed: the one that has waited longest gives way."""
    with serving() as server, ExitStack() as stack:
        kept = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
        stack.callback(kept.close)
        for n in range(200):
            idle = stack.enter_context(socket.create_connection(("127.0.0.1", server.server_port), 20))
            idle.sendall(b"GET /metrics HTTP/1.1\r\nX-Slow: "[: n % 33])
            if n % 20 == 0:
                assert request(server)[0].status == 200
                kept.request("GET", "/-/healthy")
                assert kept.getresponse().read() == b"Healthy\n"
        assert request(server)[0].status == 200


def test_a_client_that_reads_nothing_gives_way_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_PATIENCE_S", 0.0)
    crowd = connections.Connections(2)
    with ExitStack() as stack:
        ours, theirs = zip(*(map(stack.enter_context, socket.socketpair()) for _ in range(4)), strict=True)
        assert crowd.admit(ours[0])
        assert crowd.admit(ours[1])
        with crowd.answering(ours[0]):
            assert crowd.admit(ours[2])  # 1 waited for its request
            assert theirs[1].recv(1) == b""
            with crowd.answering(ours[2]):
                assert crowd.admit(ours[3])  # all are answering, 0 for longest
                assert theirs[0].recv(1) == b""
        theirs[2].setblocking(False)
        with pytest.raises(BlockingIOError):
            theirs[2].recv(1)


def test_answers_under_way_are_left_alone() -> None:
    crowd = connections.Connections(1)
    with ExitStack() as stack:
        first, second = map(stack.enter_context, socket.socketpair())
        assert crowd.admit(first)
        with crowd.answering(first):
            assert not crowd.admit(second)
        crowd.leave(first)
        assert crowd.admit(second)


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_target_that_makes_no_sense(method: str, caplog: pytest.LogCaptureFixture) -> None:
    with (
        serving() as server,
        socket.create_connection(("127.0.0.1", server.server_port), timeout=20) as connection,
    ):
        connection.sendall(f"{method} http://[::1 HTTP/1.1\r\n\r\n".encode())
        status = connection.recv(1000).split()[1]
    assert status == (b"404" if method == "GET" else b"405")
    assert not caplog.records
