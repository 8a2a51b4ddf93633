"""TLS contexts from the web configuration."""

from __future__ import annotations

import ssl
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from argus.exporter.web.config import Tls, WebConfigError


def context(tls: Tls, path: Path) -> ssl.SSLContext:
    """A server's context; WebConfigError, naming the file at ``path``, when OpenSSL refuses a part."""
    result = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    step = "min_version"
    try:
        with warnings.catch_warnings():
            # TLS 1.0 and 1.1 are deprecated, but whoever wrote them into the file has asked for them.
            warnings.simplefilter("ignore", DeprecationWarning)
            result.minimum_version = tls.min_version
            result.maximum_version = tls.max_version
        step = "cipher_suites"
        if tls.ciphers:
            result.set_ciphers(tls.ciphers)
        if tls.prefer_server_ciphers:
            result.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
        step = "curve_preferences"
        if tls.curve:
            result.set_ecdh_curve(tls.curve)
        step = f"cert_file {tls.cert_file} or key_file {tls.key_file}"
        result.load_cert_chain(tls.cert_file, tls.key_file, password=_no_password)
        step = f"client_ca_file {tls.client_ca_file}" if tls.client_ca_file else "client_ca"
        if tls.client_ca_file or tls.client_ca:
            result.load_verify_locations(cafile=tls.client_ca_file, cadata=tls.client_ca)
        result.verify_mode = tls.client_auth
    except (OSError, ValueError) as error:
        raise WebConfigError(f"{path}: tls_server_config.{step} can't be used: {error}") from None
    return result


def _no_password() -> str:
    # Without this OpenSSL would ask at the terminal, and the exporter would hang.
    raise ValueError("the key is encrypted; give one without a passphrase")


def allowed(certificate: Mapping[str, Any] | None, sans: tuple[str, ...]) -> bool:
    """Whether a verified client certificate carries one of the allowed alternative names."""
    if not sans:
        return True
    names = {value for _, value in (certificate or {}).get("subjectAltName", ())}
    return not names.isdisjoint(sans)
