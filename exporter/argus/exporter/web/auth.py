"""Basic authentication with bcrypt hashes."""

from __future__ import annotations

import base64
import binascii
import hashlib
import secrets
import threading
from collections.abc import Mapping

import bcrypt

_MOST_REMEMBERED = 256
# Compared against for unknown users, so that they take as long as known ones.
_NOBODY = b"$2b$10$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW"


class Authenticator:
    """Checks Authorization headers.

    A bcrypt hash costs tens of milliseconds on purpose; outcomes are remembered (keyed by a salted
    digest, never by the password) so that each scrape does not pay for it again.
    """

    def __init__(self) -> None:
        self._salt = secrets.token_bytes(16)
        self._known: dict[bytes, bool] = {}
        self._lock = threading.Lock()

    def check(self, header: str | None, users: Mapping[str, bytes]) -> bool:
        """Whether the header names a user and that user's password; True when no users are set."""
        if not users:
            return True
        credentials = _decode(header or "")
        if credentials is None:
            return False
        name, password = credentials
        hashed = users.get(name, _NOBODY)
        material = b"\0".join((self._salt, hashed, name.encode(), password))
        digest = hashlib.sha256(material).digest()
        outcome = self._known.get(digest)
        if outcome is None:
            with self._lock:  # one hash at a time: strangers must not keep every core busy
                outcome = _matches(password, hashed) and name in users
                if outcome or len(self._known) < _MOST_REMEMBERED:
                    self._known[digest] = outcome
        return outcome


def _matches(password: bytes, hashed: bytes) -> bool:
    try:
        return bcrypt.checkpw(password, hashed)
    except ValueError:  # longer than bcrypt's 72 bytes, or with a NUL
        return False


def _decode(header: str) -> tuple[str, bytes] | None:
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        name, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
        return (name.decode(), password) if colon else None
    except (binascii.Error, UnicodeDecodeError):
        return None
