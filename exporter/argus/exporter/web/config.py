"""``--web.config.file``, in the format of Prometheus's exporter-toolkit.

Source of the format: exporter-toolkit, docs/web-configuration.md.  Not
supported here, and refused with a message: certificates written into the file
itself, client certificates that nobody verifies, ``rate_limit``.  ``http2`` is
accepted and has no effect; the server speaks HTTP/1.1.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

_VERSIONS = {
    "TLS10": ssl.TLSVersion.TLSv1,
    "TLS11": ssl.TLSVersion.TLSv1_1,
    "TLS12": ssl.TLSVersion.TLSv1_2,
    "TLS13": ssl.TLSVersion.TLSv1_3,
}
_CLIENT_AUTH = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
_UNVERIFIED = ("RequestClientCert", "RequireAnyClientCert")
_CURVES = {"CurveP256": "prime256v1", "CurveP384": "secp384r1", "CurveP521": "secp521r1", "X25519": "X25519"}
_HEADERS = (
    "Content-Security-Policy",
    "X-Frame-Options",
    "X-Content-Type-Options",
    "X-XSS-Protection",
    "Strict-Transport-Security",
)
_BCRYPT = re.compile(r"\$2[abxy]\$[0-9]{2}\$[./A-Za-z0-9]{53}\Z")
_HEADER_VALUE = re.compile(r"[\x20-\x7e]*\Z")


class WebConfigError(ValueError):
    """The file is wrong; the message names it, the key and the mend."""


@dataclass(frozen=True)
class Tls:
    """``tls_server_config``."""

    cert_file: Path
    key_file: Path
    client_auth: ssl.VerifyMode
    client_ca_file: Path | None
    client_ca: str | None
    client_allowed_sans: tuple[str, ...]
    min_version: ssl.TLSVersion
    max_version: ssl.TLSVersion
    ciphers: str | None
    prefer_server_ciphers: bool
    curve: str | None


@dataclass(frozen=True)
class WebConfig:
    """The whole file; empty when there is none."""

    tls: Tls | None = None
    users: Mapping[str, bytes] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


def load(path: Path) -> WebConfig:
    """Read and check the file; WebConfigError when anything in it is wrong."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise WebConfigError(f"{path} can't be read: {why}") from None
    except yaml.YAMLError as error:
        raise WebConfigError(f"{path} is not YAML: {' '.join(str(error).split())}") from None
    top = _Section(path, "", content)
    tls = top.section("tls_server_config")
    http = top.section("http_server_config")
    users = top.section("basic_auth_users")
    top.refuse("rate_limit", "is not supported; limit requests in a proxy, or with --web.max-requests")
    top.finish()
    return WebConfig(_tls(tls) if tls else None, _users(users) if users else {}, _http(http) if http else {})


class _Section:
    """A mapping of the file that knows its place, and which of its keys were asked for."""

    def __init__(self, path: Path, place: str, content: Any) -> None:
        self.path = path
        self.place = place
        if content is None:
            content = {}
        if not isinstance(content, dict):
            raise self.error("", "has to be a mapping")
        self.content: dict[Any, Any] = dict(content)

    def error(self, key: str, complaint: str) -> WebConfigError:
        name = ".".join(part for part in (self.place, key) if part) or "the file"
        return WebConfigError(f"{self.path}: {name} {complaint}")

    def section(self, key: str) -> _Section | None:
        if key not in self.content:
            return None
        return _Section(self.path, f"{self.place}.{key}" if self.place else key, self.content.pop(key))

    def text(self, key: str, default: str = "") -> str:
        value = self.content.pop(key, default)
        if not isinstance(value, str):
            raise self.error(key, "has to be a string")
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self.content.pop(key, default)
        if not isinstance(value, bool):
            raise self.error(key, "has to be true or false")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.content.pop(key, None) or []
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.error(key, "has to be a list of strings")
        return tuple(value)

    def choice(self, key: str, choices: Mapping[str, Any], default: str) -> Any:
        value = self.text(key) or default
        if value not in choices:
            raise self.error(key, f"is {value!r}; it can be {', '.join(choices)}")
        return choices[value]

    def file(self, key: str) -> Path | None:
        """A path, relative to the file it stands in."""
        value = self.text(key)
        return self.path.parent / value if value else None

    def refuse(self, key: str, complaint: str) -> None:
        if self.content.pop(key, None):
            raise self.error(key, complaint)

    def finish(self) -> None:
        for key in self.content:
            raise self.error(str(key), "is not a known key; correct or remove it")


def _tls(section: _Section) -> Tls | None:
    for key, instead in (("cert", "cert_file"), ("key", "key_file")):
        section.refuse(key, f"is not supported inside the file; name a file in {instead}")
    cert, key_file = section.file("cert_file"), section.file("key_file")
    if section.content.get("client_auth_type") in _UNVERIFIED:
        raise section.error(
            "client_auth_type", "would let anybody in with any certificate; use RequireAndVerifyClientCert"
        )
    client_ca_file, client_ca = section.file("client_ca_file"), section.text("client_ca") or None
    tls_keys = {
        "client_auth": section.choice("client_auth_type", _CLIENT_AUTH, "NoClientCert"),
        "client_allowed_sans": section.texts("client_allowed_sans"),
        "min_version": section.choice("min_version", _VERSIONS, "TLS12"),
        "max_version": section.choice("max_version", _VERSIONS, "TLS13"),
        "ciphers": _ciphers(section),
        "prefer_server_ciphers": section.flag("prefer_server_cipher_suites", True),
        "curve": _curve(section),
    }
    section.finish()
    if cert is None or key_file is None:
        raise section.error("", "needs both cert_file and key_file")
    verifies = tls_keys["client_auth"] is not ssl.CERT_NONE
    if client_ca_file and client_ca:
        raise section.error("client_ca", "and client_ca_file are both given; keep one")
    if verifies and not (client_ca_file or client_ca):
        raise section.error("client_ca_file", "is needed to verify client certificates")
    if not verifies and (client_ca_file or client_ca):
        raise section.error(
            "client_ca_file",
            "has no effect with client_auth_type NoClientCert; use RequireAndVerifyClientCert",
        )
    if tls_keys["client_allowed_sans"] and tls_keys["client_auth"] is not ssl.CERT_REQUIRED:
        raise section.error("client_allowed_sans", "needs client_auth_type RequireAndVerifyClientCert")
    if tls_keys["min_version"] > tls_keys["max_version"]:
        raise section.error("min_version", "is above max_version")
    return Tls(cert, key_file, client_ca_file=client_ca_file, client_ca=client_ca, **tls_keys)


def _ciphers(section: _Section) -> str | None:
    """Cipher suites by Go's names (up to TLS 1.2), as OpenSSL writes them."""
    names = []
    for name in section.texts("cipher_suites"):
        match = re.fullmatch(r"TLS_(?:(ECDHE)_)?(RSA|ECDSA)_WITH_(.+?)(_SHA|_SHA256|_SHA384)?", name)
        if name.startswith(("TLS_AES_", "TLS_CHACHA20_")):
            continue  # TLS 1.3: always on, in Go as in OpenSSL
        if match is None:
            raise section.error("cipher_suites", f"holds {name!r}, which is not a cipher suite of Go")
        exchange, signature, cipher, digest = match.groups()
        cipher = cipher.replace("AES_128", "AES128").replace("AES_256", "AES256").replace("_CBC", "")
        cipher = cipher.replace("CHACHA20_POLY1305", "CHACHA20-POLY1305").replace("_", "-")
        parts = [exchange, signature] if exchange else []
        if not cipher.startswith("CHACHA20"):
            cipher += (digest or "").replace("_", "-")
        names.append("-".join([*parts, cipher]))
    return ":".join(names) or None


def _curve(section: _Section) -> str | None:
    curves = section.texts("curve_preferences")
    if len(curves) > 1:
        raise section.error("curve_preferences", "can hold one curve here; leave it out for the usual ones")
    if curves and curves[0] not in _CURVES:
        raise section.error("curve_preferences", f"holds {curves[0]!r}; it can be {', '.join(_CURVES)}")
    return _CURVES[curves[0]] if curves else None


def _users(section: _Section) -> dict[str, bytes]:
    users = {}
    for name in list(section.content):
        if not isinstance(name, str) or not name or ":" in name:
            raise section.error(str(name), "is no user name; it needs to be a string without a colon")
        hashed = section.text(name)
        if not _BCRYPT.match(hashed):
            raise section.error(name, "is not a bcrypt hash; make one with: htpasswd -nBC 10 ''")
        users[name] = hashed.encode()
    return users


def _http(section: _Section) -> dict[str, str]:
    section.flag("http2", True)
    headers = section.section("headers")
    section.finish()
    result = {}
    if headers is not None:
        for name in _HEADERS:
            value = headers.text(name)
            if not _HEADER_VALUE.match(value):
                raise headers.error(name, "holds characters that a header can't")
            if value:
                result[name] = value
        headers.finish()
    return result
