"""Everything that runs in the demo: the job, the exporter, Prometheus, Alertmanager, the webhook's end."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import requests
import yaml

from argus import ruleset
from argus.prometheus import Alertmanager, Process, Prometheus, WebhookReceiver, free_port

RANKS = 4
SCRAPE_INTERVAL = 5.0


class DemoError(RuntimeError):
    """The demo can't go on; the message says why and where to look."""


@dataclass(frozen=True)
class Binaries:
    """What runs besides this package's own programs."""

    prometheus: Path
    alertmanager: Path


class Stack:
    """Starts the parts one by one; a context manager that stops them in the right order.

    Attributes:
        directory: Logs, data and the control files.
        run_id: The job's.
        webhook: Where Alertmanager delivers.
    """

    def __init__(self, directory: Path, binaries: Binaries) -> None:
        self.directory = directory
        self.run_id = f"demo-{os.getpid()}"
        self.control = directory / "control"
        self.control.mkdir()
        self._segments = directory / "segments"
        self._segments.mkdir()
        self._temporary = directory / "tmp"
        self._temporary.mkdir()
        self._binaries = binaries
        self._stop = contextlib.ExitStack()
        self._processes: dict[str, Process] = {}
        self.webhook = self._stop.enter_context(WebhookReceiver())

    def __enter__(self) -> Stack:
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.close()

    def start_job(self) -> None:
        """Four ranks of `argus.demo.job` under torchrun."""
        command = [
            sys.executable, "-m", "torch.distributed.run",
            "--nnodes=1", f"--nproc-per-node={RANKS}", "--max-restarts=0",
            "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", f"--rdzv-id={self.run_id}",
            "--module", "argus.demo.job", str(self.control),
        ]  # fmt: skip
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo",
            "ARGUS_DIR": str(self._segments),
            "ARGUS_RUN_ID": self.run_id,
            "TORCH_CPP_LOG_LEVEL": "ERROR",
            "TMPDIR": str(self._temporary),  # torch leaves folders behind
        }
        for name in ("ARGUS_DISABLE", "ARGUS_ROLE", "ARGUS_NODE"):
            environment.pop(name, None)
        self._run("job", command, environment)

    def start_exporter(self) -> str:
        """The node's exporter; returns the address that it serves."""
        address = f"127.0.0.1:{free_port()}"
        command = [
            sys.executable, "-m", "argus.cli", "exporter",
            f"--web.listen-address={address}", f"--segments.directory={self._segments}",
        ]  # fmt: skip
        self._run("exporter", command, dict(os.environ))
        with requests.Session() as session:
            session.trust_env = False

            def ready() -> bool:
                with contextlib.suppress(requests.RequestException):
                    return session.get(f"http://{address}/-/ready", timeout=2).status_code == 200
                return False

            self.wait(ready, 30, "the exporter does not answer")
        return address

    def start_alertmanager(self) -> Alertmanager:
        """Alertmanager with the shipped example's routes, everything delivered to the webhook."""
        return self._stop.enter_context(
            Alertmanager(
                alertmanager_config(self.webhook.url),
                binary=self._binaries.alertmanager,
                directory=self.directory / "alertmanager",
            )
        )

    def start_prometheus(self, exporter: str, alertmanager: Alertmanager) -> Prometheus:
        """Prometheus with the shipped rules, rendered for the demo's scrape interval."""
        options = ruleset.Options(
            scrape_interval=SCRAPE_INTERVAL,
            runbook_base=Path(str(resources.files("argus") / "runbooks")).resolve().as_uri(),
        )
        return self._stop.enter_context(
            Prometheus(
                prometheus_config(exporter, alertmanager.address),
                ruleset.render_files(options),
                binary=self._binaries.prometheus,
                directory=self.directory / "prometheus",
            )
        )

    def check(self) -> None:
        """Raise `DemoError` when something that should run has ended."""
        for name, process in self._processes.items():
            status = process.poll()
            if status is not None:
                raise DemoError(f"the {name} ended with status {status}:\n{process.tail(25)}")

    def wait(self, condition: Callable[[], Any], timeout: float, otherwise: str) -> Any:
        """The first true value of ``condition``, asked twice a second while everything runs.

        Raises:
            DemoError: ``otherwise``, after ``timeout`` seconds.
        """
        deadline = time.monotonic() + timeout
        while True:
            self.check()
            value = condition()
            if value:
                return value
            if time.monotonic() > deadline:
                raise DemoError(f"{otherwise} (waited {timeout:.0f} s; logs are in {self.directory})")
            time.sleep(0.5)

    def _run(self, name: str, command: list[str], environment: dict[str, str]) -> None:
        process = Process(command, self.directory / f"{name}.log", environment)
        self._processes[name] = process
        self._stop.callback(process.stop)


def alertmanager_config(webhook: str) -> str:
    """The shipped example with the webhook in the place of every receiver."""
    text = (resources.files("argus") / "examples" / "alertmanager.yml").read_text()
    config = yaml.safe_load(text)
    config.pop("templates", None)
    config["receivers"] = [
        {"name": receiver["name"], "webhook_configs": [{"url": webhook, "send_resolved": True}]}
        for receiver in config["receivers"]
    ]
    dumped: str = yaml.safe_dump(config, sort_keys=False)
    return dumped


def prometheus_config(exporter: str, alertmanager: str) -> str:
    """Scrape one exporter, read the rules beside it, deliver to one Alertmanager."""
    config = {
        "global": {
            "scrape_interval": f"{SCRAPE_INTERVAL:.0f}s",
            "evaluation_interval": f"{SCRAPE_INTERVAL:.0f}s",
        },
        "rule_files": ["rules/*.yml"],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]},
        "scrape_configs": [{"job_name": "argus", "static_configs": [{"targets": [exporter]}]}],
    }
    dumped: str = yaml.safe_dump(config, sort_keys=False)
    return dumped
