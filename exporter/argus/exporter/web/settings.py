"""The web configuration as it stands now: read again when one of its files changes."""

from __future__ import annotations

import logging
import os
import ssl
import threading
from pathlib import Path

from argus.exporter.web import config, tls
from argus.exporter.web.config import WebConfig, WebConfigError

_LOG = logging.getLogger(__name__)


class Settings:
    """The configuration and its TLS context.

    Args:
        path: ``--web.config.file``, or None for plain HTTP without passwords.

    Raises:
        WebConfigError: The file is wrong at the start.  When it becomes wrong later, the last good
            one stays in force and the log says so once.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._config = WebConfig()
        self._context: ssl.SSLContext | None = None
        self._stamp: tuple[object, ...] = ()
        if path is not None:
            self._load(path)

    @property
    def secure(self) -> bool:
        """Whether the server speaks TLS; fixed when it starts to listen."""
        return self._context is not None

    def current(self) -> tuple[WebConfig, ssl.SSLContext | None]:
        """The configuration and context for a new connection or request."""
        if self._path is not None:
            with self._lock:
                if self._stamp != (_stamp(self._path), *_certificate_stamps(self._config)):
                    self._reload(self._path)
        return self._config, self._context

    def _load(self, path: Path) -> None:
        # Stamps before reading: a change meanwhile is then seen the next time.
        own = _stamp(path)
        fresh = config.load(path)
        stamp = (own, *_certificate_stamps(fresh))
        context = tls.context(fresh.tls, path) if fresh.tls else None
        self._config, self._context, self._stamp = fresh, context, stamp

    def _reload(self, path: Path) -> None:
        before = self._config, self._context
        was_secure = self.secure
        try:
            self._load(path)
            if before[0].users and not self._config.users and _is_blank(path):
                # Cut short by whoever is just writing it: that must not open the door.
                self._config, self._context = before
                raise WebConfigError(f"{path} is empty, and had users; without users it needs a restart")
            if self.secure != was_secure:
                self._config, self._context = before
                raise WebConfigError(
                    f"{path} switches TLS {'off' if was_secure else 'on'}, which needs a restart"
                )
            _LOG.info("%s was read again", path)
        except WebConfigError as error:
            self._stamp = (_stamp(path), *_certificate_stamps(self._config))
            _LOG.error("%s; the configuration read before stays in force", error)


def _is_blank(path: Path) -> bool:
    try:
        return not path.read_bytes().strip()
    except OSError:
        return True


def _certificate_stamps(current: WebConfig) -> tuple[object, ...]:
    tls_ = current.tls
    files = (tls_.cert_file, tls_.key_file, tls_.client_ca_file) if tls_ else ()
    return tuple(_stamp(file) for file in files if file is not None)


def _stamp(path: Path) -> object:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
