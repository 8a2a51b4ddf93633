"""Find the binaries of Prometheus, Alertmanager and promtool, or say how to get them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


class BinaryNotFoundError(RuntimeError):
    """A binary is missing or can't be run; the message says how to get it."""


def find_prometheus(path: str | os.PathLike[str] | None = None) -> Path:
    """The Prometheus server: ``path``, else ``$ARGUS_PROMETHEUS``, else on ``PATH``."""
    return _find(path, "Prometheus", "ARGUS_PROMETHEUS", "--prometheus", ("prometheus",), "prometheus")


def find_alertmanager(path: str | os.PathLike[str] | None = None) -> Path:
    """Alertmanager: ``path``, else ``$ARGUS_ALERTMANAGER``, else on ``PATH`` (also under Debian's name)."""
    names = ("alertmanager", "prometheus-alertmanager")
    return _find(
        path, "Alertmanager", "ARGUS_ALERTMANAGER", "--alertmanager", names, "prometheus-alertmanager"
    )


def find_promtool(path: str | os.PathLike[str] | None = None) -> Path:
    """promtool: ``path``, else ``$ARGUS_PROMTOOL``, else on ``PATH``."""
    return _find(path, "promtool", "ARGUS_PROMTOOL", None, ("promtool",), "prometheus")


def binary_version(binary: Path) -> tuple[int, int, int]:
    """Version that ``binary --version`` reports, such as ``(2, 42, 0)``.

    Raises:
        BinaryNotFoundError: It can't be run, or what it prints holds no version.
    """
    try:
        done = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.SubprocessError) as error:
        raise BinaryNotFoundError(f"{binary} can't be run: {error}") from error
    output = done.stdout + done.stderr
    found = re.search(r"version v?(\d+)\.(\d+)\.(\d+)", output)
    if not found:
        raise BinaryNotFoundError(f"{binary} --version says nothing like a version: {output.strip()[:200]!r}")
    major, minor, patch = (int(part) for part in found.groups())
    return major, minor, patch


def _find(
    path: str | os.PathLike[str] | None,
    product: str,
    variable: str,
    flag: str | None,
    names: Sequence[str],
    package: str,
    environ: Mapping[str, str] = os.environ,
) -> Path:
    given, source = (os.fspath(path), "as given") if path else (environ.get(variable), f"from ${variable}")
    if given:
        found = shutil.which(given)
        if found is None:
            raise BinaryNotFoundError(f"{product} {source} ({given}) is not an executable file")
        return Path(found)
    for name in names:
        found = shutil.which(name)
        if found is not None:
            return Path(found)
    ways = [
        f"`apt install {package}` on Debian or Ubuntu (its service is not needed and may stay off)",
        "a release from the download page of the Prometheus project, put on PATH",
        (f"{flag} PATH or " if flag else "") + f"{variable}=PATH where it is installed elsewhere",
    ]
    raise BinaryNotFoundError(
        f"{product} is needed and was not found (looked for {' and '.join(names)} on PATH). Any one of:\n"
        + "\n".join(f"  - {way}" for way in ways)
    )
