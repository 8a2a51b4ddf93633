"""``--web.config.file``: passwords, TLS, client certificates, headers, errors."""

from __future__ import annotations

import base64
import datetime
import http.client
import ipaddress
import socket
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import bcrypt
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from argus.exporter.web import auth, config
from argus.exporter.web.config import WebConfigError
from argus.exporter.web.server import Server
from argus.exporter.web.settings import Settings
from exporter_support import until
from web_support import request, serving

HASH = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()


def _basic(name: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()}


def _config(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_basic_auth(tmp_path: Path) -> None:
    path = _config(tmp_path / "web.yml", f"basic_auth_users:\n  alice: {HASH}\n")
    with serving(Settings(path)) as server:
        for place in ("/metrics", "/", "/-/healthy", "/nowhere"):
            response, body = request(server, place)
            assert response.status == 401
            assert response.headers["WWW-Authenticate"] == "Basic"
            assert b"argus_" not in body
        good = _basic("alice", "secret")
        for _ in range(2):
            assert request(server, headers=good)[0].status == 200
        for bad in (
            _basic("alice", "wrong"), _basic("bob", "secret"), _basic("alice", ""), _basic("", ""),
            _basic("alice", "x" * 100), _basic("alice", "nul\0"), {"Authorization": "Basic !!!"},
            {"Authorization": "Bearer x"}, {"Authorization": "Basic"},
        ):  # fmt: skip
            assert request(server, headers=bad)[0].status == 401

        other = bcrypt.hashpw(b"other", bcrypt.gensalt(4)).decode()
        _config(path, f"basic_auth_users:\n  alice: {other}\n")
        assert request(server, headers=good)[0].status == 401
        assert request(server, headers=_basic("alice", "other"))[0].status == 200
        _config(path, "basic_auth_users: [broken]\n")  # the last good one stays
        assert request(server)[0].status == 401
        assert request(server, headers=_basic("alice", "other"))[0].status == 200


def test_htpasswd_hashes_of_all_spellings() -> None:
    authenticator = auth.Authenticator()
    for letter in "aby":
        hashed = HASH.replace("$2b$", f"$2{letter}$").encode()
        assert authenticator.check(_basic("u", "secret")["Authorization"], {"u": hashed})
        assert not authenticator.check(_basic("u", "Secret")["Authorization"], {"u": hashed})


def test_unknown_users_cost_as_much_as_known_ones() -> None:
    # The stand-in hash has to be a real one, else bcrypt refuses it at once.
    assert bcrypt.checkpw(b"anything", auth._NOBODY) in (True, False)
    authenticator = auth.Authenticator()
    for number in range(300):
        assert not authenticator.check("Basic " + "x" * number, {"u": HASH.encode()})


# TLS


class Authority:
    """A certificate authority for one test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
        self.certificate = self._sign(self._name, self._key.public_key(), ca=True)
        self.file = self._write("ca.pem", self.certificate)

    def issue(self, name: str, sans: Sequence[x509.GeneralName] = ()) -> tuple[Path, Path]:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = self._sign(subject, key.public_key(), sans=sans)
        key_file = self.folder / f"{name}.key"
        key_file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return self._write(f"{name}.pem", certificate), key_file

    def client(self, name: str | None = None, sans: Sequence[x509.GeneralName] = ()) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.file))
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if name:
            context.load_cert_chain(*self.issue(name, sans))
        return context

    def _sign(
        self, subject: x509.Name, key: Any, ca: bool = False, sans: Sequence[x509.GeneralName] = ()
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.timezone.utc)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        )
        if sans:
            builder = builder.add_extension(x509.SubjectAlternativeName(sans), critical=False)
        return builder.sign(self._key, hashes.SHA256())

    def _write(self, name: str, certificate: x509.Certificate) -> Path:
        path = self.folder / name
        path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        return path


LOCALHOST = [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    authority = Authority(tmp_path)
    authority.issue("server", LOCALHOST)
    return authority


def _refused(server: Server, context: ssl.SSLContext) -> bool:
    try:
        return request(server, tls=context)[0].status == 0
    except (ssl.SSLError, OSError, http.client.HTTPException):
        return True


def test_tls(tmp_path: Path, authority: Authority) -> None:
    path = _config(
        tmp_path / "web.yml",
        "tls_server_config: {cert_file: server.pem, key_file: server.key}\n"
        "http_server_config:\n  headers: {X-Frame-Options: deny, Strict-Transport-Security: max-age=60}\n",
    )
    with serving(Settings(path)) as server:
        assert server.url.startswith("https://")
        response, body = request(server, tls=authority.client())
        assert response.status == 200
        assert response.headers["X-Frame-Options"] == "deny"
        assert response.headers["Strict-Transport-Security"] == "max-age=60"
        assert b"argus_rank_up" in body
        with pytest.raises((http.client.HTTPException, OSError)):
            request(server)
        old = authority.client()
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        assert request(server, tls=old)[0].status == 200

        # A silent client does not keep the others out.
        with socket.create_connection(("127.0.0.1", server.server_port)):
            assert request(server, tls=authority.client())[0].status == 200

        # A renewed certificate is used from the next connection on.
        before = _serial(server)
        authority.issue("server", LOCALHOST)
        until(lambda: _serial(server) != before)
        assert request(server, tls=authority.client())[0].status == 200


def _serial(server: Server) -> int:
    pem = ssl.get_server_certificate(("127.0.0.1", server.server_port))
    return x509.load_pem_x509_certificate(pem.encode()).serial_number


def test_minimum_version_and_ciphers(tmp_path: Path, authority: Authority) -> None:
    path = _config(
        tmp_path / "web.yml",
        "tls_server_config:\n  cert_file: server.pem\n  key_file: server.key\n  min_version: TLS13\n",
    )
    with serving(Settings(path)) as server:
        old = authority.client()
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        assert _refused(server, old)
        assert request(server, tls=authority.client())[0].status == 200
    _config(
        path,
        "tls_server_config:\n  cert_file: server.pem\n  key_file: server.key\n  max_version: TLS12\n"
        "  curve_preferences: [CurveP256]\n  prefer_server_cipher_suites: false\n"
        "  cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA,\n"
        "    TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256, TLS_RSA_WITH_AES_128_GCM_SHA256,\n"
        "    TLS_AES_128_GCM_SHA256]\n",
    )
    with serving(Settings(path)) as server:
        context = authority.client()
        with (
            socket.create_connection(("127.0.0.1", server.server_port)) as raw,
            context.wrap_socket(raw, server_hostname="127.0.0.1") as secured,
        ):
            cipher = secured.cipher()
            assert cipher is not None
            assert cipher[0] == "ECDHE-ECDSA-AES128-GCM-SHA256"


def test_client_certificates(tmp_path: Path, authority: Authority) -> None:
    base = (
        "tls_server_config:\n  cert_file: server.pem\n  key_file: server.key\n  client_ca_file: ca.pem\n"
        "  client_auth_type: RequireAndVerifyClientCert\n"
    )
    path = _config(tmp_path / "web.yml", base)
    (tmp_path / "other").mkdir()
    stranger = Authority(tmp_path / "other")
    with serving(Settings(path)) as server:
        assert request(server, tls=authority.client("prometheus"))[0].status == 200
        assert _refused(server, authority.client())
        foreign = authority.client()
        foreign.load_cert_chain(*stranger.issue("prometheus"))
        assert _refused(server, foreign)
    _config(path, base + "  client_allowed_sans: [prometheus.example]\n")
    with serving(Settings(path)) as server:
        assert (
            request(server, tls=authority.client("a", [x509.DNSName("prometheus.example")]))[0].status == 200
        )
        assert _refused(server, authority.client("b", [x509.DNSName("other.example")]))
        assert _refused(server, authority.client("c"))


def test_switching_tls_needs_a_restart(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    path = _config(tmp_path / "web.yml", "tls_server_config: {cert_file: server.pem, key_file: server.key}\n")
    with serving(Settings(path)) as server:
        _config(path, "")
        for _ in range(3):
            assert request(server, tls=authority.client())[0].status == 200
    assert [record.getMessage() for record in caplog.records if "restart" in record.getMessage()] == [
        f"{path} switches TLS off, which needs a restart; the configuration read before stays in force"
    ]


PAIR = "tls_server_config: {cert_file: a, key_file: b"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a list", "the file has to be a mapping"),
        ("a: [", "is not YAML"),
        ("tls_config: {}", "tls_config is not a known key"),
        (
            PAIR + ", certfile: c}",
            r"tls_server_config\.certfile is not a known",
        ),
        ("tls_server_config: {cert_file: a}", "needs both cert_file and key_file"),
        (
            "tls_server_config: {cert_file: 1, key_file: b}",
            r"tls_server_config\.cert_file has to be a string",
        ),
        ("tls_server_config: {cert: x, key: y}", "cert is not supported inside the file"),
        (
            PAIR + ", min_version: TLS14}",
            "min_version is 'TLS14'; it can be",
        ),
        (
            PAIR + ", min_version: TLS13, max_version: TLS12}",
            "above max_version",
        ),
        (
            PAIR + ", client_auth_type: RequireAnyClientCert}",
            "let anybody in",
        ),
        (
            PAIR + ", client_auth_type: RequireAndVerifyClientCert}",
            "client_ca",
        ),
        (PAIR + ", client_ca_file: c}", "has no effect"),
        (
            PAIR + ", client_allowed_sans: [x]}",
            "client_allowed_sans needs",
        ),
        (
            PAIR + ", cipher_suites: [RC4]}",
            "'RC4', which is not a cipher",
        ),
        (
            PAIR + ", curve_preferences: [Curve1]}",
            "it can be CurveP256",
        ),
        (PAIR + ", prefer_server_cipher_suites: 3}", "true or false"),
        (PAIR + "}", "cert_file .*a or key_file .*b can't be used"),
        ("basic_auth_users: {alice: secret}", "alice is not a bcrypt hash; make one"),
        ("basic_auth_users: {'a:b': x}", "without a colon"),
        ("http_server_config: {http2: maybe}", "http2 has to be true or false"),
        (
            "http_server_config: {headers: {Server: x}}",
            r"http_server_config\.headers\.Server is not a known key",
        ),
        ('http_server_config: {headers: {X-Frame-Options: "a\\r\\nb"}}', "characters that a header can't"),
        ("rate_limit: {burst: 1}", "rate_limit is not supported"),
    ],
)
def test_errors_of_the_config_file_name_file_and_key(tmp_path: Path, text: str, message: str) -> None:
    path = _config(tmp_path / "web.yml", text)
    with pytest.raises(WebConfigError, match=message) as error:
        Settings(path)
    assert str(path) in str(error.value)


def test_an_absent_config_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(WebConfigError, match="can't be read"):
        Settings(tmp_path / "absent.yml")


def test_an_empty_config_file_changes_nothing(tmp_path: Path) -> None:
    assert config.load(_config(tmp_path / "web.yml", "")) == config.WebConfig()


def test_an_encrypted_key_is_an_error_and_no_prompt(tmp_path: Path, authority: Authority) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    (tmp_path / "server.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"x"),
        )
    )
    path = _config(tmp_path / "web.yml", "tls_server_config: {cert_file: server.pem, key_file: server.key}\n")
    with pytest.raises(WebConfigError, match="without a passphrase"):
        Settings(path)


def test_a_file_that_is_being_written_opens_no_door(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "web.yml"
    hashed = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
    path.write_text(f"basic_auth_users:\n  ann: {hashed}\n")
    settings = Settings(path)
    path.write_text("")
    assert "ann" in settings.current()[0].users
    assert "stays in force" in caplog.text
    path.write_text(f"basic_auth_users:\n  bob: {hashed}\n")
    assert list(settings.current()[0].users) == ["bob"]
