"""Run a private Prometheus or Alertmanager: a free port of 127.0.0.1, and a folder of its own."""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from argus.prometheus.binaries import binary_version, find_alertmanager, find_prometheus
from argus.prometheus.client import Client
from argus.prometheus.process import Process

START_ATTEMPTS = 5
"""Another process can take the port between its choice and the server's bind."""

NATIVE_HISTOGRAMS_STABLE = (3, 8, 0)
"""From here on a scrape option, `scrape_native_histograms`, stands in the feature flag's place."""


class StartError(RuntimeError):
    """A server did not start; the message ends with its last log lines."""


class _Server(ABC):
    """One server process and its folder; a context manager that stops and removes both.

    Attributes:
        url: Base URL, such as ``http://127.0.0.1:41234``.
        address: Host and port.
        directory: Its folder: configuration, data and log.
    """

    product = ""

    def __init__(self, binary: Path, directory: Path | None, timeout: float) -> None:
        self.binary = binary
        self._own_directory = directory is None
        self.directory = directory or Path(tempfile.mkdtemp(prefix=f"argus-{self.product.lower()}-"))
        self.directory.mkdir(parents=True, exist_ok=True)
        self.log = self.directory / f"{self.product.lower()}.log"
        try:
            self._start(timeout)
        except BaseException:
            self._remove()
            raise

    @abstractmethod
    def _flags(self) -> list[str]:
        """Flags without the address."""

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def poll(self) -> int | None:
        """Exit status, or None while it runs."""
        return self._process.poll()

    def tail(self, lines: int = 15) -> str:
        """The last lines of its log."""
        return self._process.tail(lines)

    def stop(self) -> None:
        """Stop it, and remove its folder unless the caller gave it."""
        try:
            self._process.stop()
        finally:
            self._remove()

    def _remove(self) -> None:
        if self._own_directory:
            shutil.rmtree(self.directory, ignore_errors=True)

    def _start(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        for attempt in range(1, START_ATTEMPTS + 1):
            self.address = f"127.0.0.1:{free_port()}"
            self.url = f"http://{self.address}"
            command = [
                str(self.binary),
                f"--web.listen-address={self.address}",
                f"--web.external-url={self.url}",
                *self._flags(),
            ]
            self.log.unlink(missing_ok=True)
            self._process = Process(command, self.log)
            try:
                if self._becomes_ready(deadline):
                    return
            except BaseException:
                self._process.stop()
                raise
            tail = self.tail()
            if self._process.poll() is None:
                self._process.stop()
                raise StartError(f"{self.product} was not ready within {timeout:.0f} s:\n{tail}")
            if "address already in use" not in tail or attempt == START_ATTEMPTS:
                raise StartError(f"{self.product} ended with status {self._process.poll()}:\n{tail}")

    def _becomes_ready(self, deadline: float) -> bool:
        client = Client(self.url)
        try:
            while time.monotonic() < deadline and self._process.poll() is None:
                # Another server may answer: the one that took the port.
                if client.ready() and _listens(self.pid, self.address):
                    return True
                time.sleep(0.05)
            return False
        finally:
            client.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class Prometheus(_Server):
    """A private Prometheus.

    Attributes:
        version: Such as ``(2, 42, 0)``.
        client: Asks it.
    """

    product = "Prometheus"

    def __init__(
        self,
        config: str,
        rules: Mapping[str, str] | None = None,
        *,
        binary: Path | None = None,
        directory: Path | None = None,
        native_histograms: bool = False,
        flags: Sequence[str] = (),
        timeout: float = 30.0,
    ) -> None:
        """Start it and return when it is ready.

        Args:
            config: Text of its configuration; ``rule_files: [rules/*.yml]`` takes ``rules`` in.
            rules: File name to text, written to the folder ``rules`` beside the configuration.
            binary: As `find_prometheus` gives it; by default found that way.
            directory: Folder to use and to leave behind; by default a temporary one, removed by `stop`.
            native_histograms: Scrape them where this takes a flag (before 3.8).
            flags: Further command-line flags.
            timeout: Seconds until it must be ready.

        Raises:
            BinaryNotFoundError: There is no Prometheus.
            StartError: It did not start, for example for an error in the configuration.
        """
        binary = binary or find_prometheus()
        self.version = binary_version(binary)
        self._extra = list(flags)
        if native_histograms and self.version < NATIVE_HISTOGRAMS_STABLE:
            self._extra.append("--enable-feature=native-histograms")
        self._config, self._rules = config, dict(rules or {})
        super().__init__(binary, directory, timeout)
        self.client = Client(self.url)

    def _flags(self) -> list[str]:
        self._write()
        return [
            f"--config.file={self.directory / 'prometheus.yml'}",
            f"--storage.tsdb.path={self.directory / 'data'}",
            *self._extra,
        ]

    def _write(self) -> None:
        folder = self.directory / "rules"
        folder.mkdir(exist_ok=True)
        for name, text in self._rules.items():
            (folder / name).write_text(text)
        (self.directory / "prometheus.yml").write_text(self._config)

    def wait_for_alertmanager(self, timeout: float = 30.0) -> None:
        """Return when it has discovered an Alertmanager.

        This takes up to 5 s after a start or reload, even for a static one;
        an alert that fires earlier is delivered only after the resend delay
        (``--rules.alert.resend-delay``, 1 min).

        Raises:
            StartError: It discovered none.
        """
        deadline = time.monotonic() + timeout
        while not self.client.alertmanagers():
            if time.monotonic() > deadline:
                raise StartError(f"Prometheus found no Alertmanager within {timeout:.0f} s:\n{self.tail()}")
            time.sleep(0.1)

    def reload(self, config: str, rules: Mapping[str, str] | None = None) -> None:
        """Write a new configuration (and further rule files) and have it read; errors go to the log."""
        self._config = config
        self._rules.update(rules or {})
        self._write()
        self._process.signal(signal.SIGHUP)

    def stop(self) -> None:
        self.client.close()
        super().stop()

    def __enter__(self) -> Prometheus:
        return self


class Alertmanager(_Server):
    """A private Alertmanager, without clustering."""

    product = "Alertmanager"

    def __init__(
        self,
        config: str,
        files: Mapping[str, str] | None = None,
        *,
        binary: Path | None = None,
        directory: Path | None = None,
        flags: Sequence[str] = (),
        timeout: float = 30.0,
    ) -> None:
        """Start it and return when it is ready.

        Args:
            config: Text of its configuration.
            files: File name to text, written beside the configuration (templates).
            binary: As `find_alertmanager` gives it; by default found that way.
            directory: Folder to use and to leave behind; by default a temporary one, removed by `stop`.
            flags: Further command-line flags.
            timeout: Seconds until it must be ready.

        Raises:
            BinaryNotFoundError: There is no Alertmanager.
            StartError: It did not start, for example for an error in the configuration.
        """
        self._config, self._files, self._extra = config, dict(files or {}), list(flags)
        super().__init__(binary or find_alertmanager(), directory, timeout)

    def _flags(self) -> list[str]:
        for name, text in self._files.items():
            path = self.directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (self.directory / "alertmanager.yml").write_text(self._config)
        return [
            f"--config.file={self.directory / 'alertmanager.yml'}",
            f"--storage.path={self.directory / 'data'}",
            "--cluster.listen-address=",
            *self._extra,
        ]

    def __enter__(self) -> Alertmanager:
        return self


def _listens(pid: int, address: str) -> bool:
    """Whether the process itself holds the listening socket of ``address`` (IPv4, by /proc)."""
    port = f":{int(address.rpartition(':')[2]):04X}"
    try:
        rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
        sockets = {f"socket:[{row[9]}]" for row in rows if row[1].endswith(port) and row[3] == "0A"}
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):  # closed since it was listed
                if descriptor.readlink().name in sockets:
                    return True
    except OSError:
        pass  # the process has ended
    return False


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
