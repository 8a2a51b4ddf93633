"""Stacks from outside, by py-spy: also of a rank that holds the GIL in C code, and of a frozen one.

py-spy reads the memory of the other process, which needs the right to trace it:
the exporter runs as root with CAP_SYS_PTRACE, or as the job's user where the
kernel allows that.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

DEADLINE_S = 20.0
_MOST_BYTES = 1 << 20
_ONE = threading.Lock()


class DumpError(Exception):
    """There is no dump; the message says why and the mend."""


def find_py_spy() -> str:
    """Path of py-spy: beside this Python, else on the path.

    Raises:
        DumpError: It is not installed.
    """
    beside = Path(sys.executable).with_name("py-spy")
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("py-spy")
    if found is None:
        raise DumpError(
            "py-spy is not installed here; install it beside argus: pip install 'argus-gpu[stacks]'"
        )
    return found


def dump(pid: int, deadline_s: float = DEADLINE_S) -> str:
    """The stacks of all Python threads of a process, which is not stopped for it.

    One at a time in this process; others wait.

    Args:
        pid: As seen from here; 0: it can't be seen.
        deadline_s: py-spy is killed after this time.

    Raises:
        DumpError: py-spy is not there, is not allowed to, fails, or takes too long.
    """
    if pid <= 0:
        raise DumpError(
            "its process can't be seen from here: it is in another PID namespace; in Kubernetes set "
            "shareProcessNamespace: true on the pod (sidecar) or hostPID: true (DaemonSet)"
        )
    command = [find_py_spy(), "dump", "--nonblocking", "--pid", str(pid)]
    with _ONE, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=os.environ | {"RUST_BACKTRACE": "0"},
                start_new_session=True,
            )
        except OSError as error:
            raise DumpError(f"{command[0]} can't be run: {error.strerror}") from None
        try:
            status = process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # and whatever it started
            raise DumpError(f"py-spy took more than {deadline_s:.0f} s and was stopped") from None
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            process.wait()
        text, complaint = _beginning(out), _beginning(err)
    if status or not text.strip():
        raise DumpError(_explain(pid, complaint or text))
    return text


def _beginning(file: object) -> str:
    fd = file.fileno()  # type: ignore[attr-defined]
    return os.pread(fd, _MOST_BYTES, 0).decode("utf-8", "replace")


def _explain(pid: int, complaint: str) -> str:
    said = " ".join(complaint.split())[:300]
    lowered = said.lower()
    if "permission denied" in lowered or "operation not permitted" in lowered:
        return (
            f"process {pid} may not be traced from here: run the exporter as root or as the job's user, in a "
            "container with the capability SYS_PTRACE (securityContext.capabilities.add), and, as the job's "
            f"user, with kernel.yama.ptrace_scope=0 {_scope()}"
        ).rstrip()
    if "no such process" in lowered or not Path(f"/proc/{pid}").exists():
        return f"process {pid} is gone"
    return f"py-spy failed for process {pid}: {said or 'it said nothing'}"


def _scope() -> str:
    with suppress(OSError):
        return f"(it is {Path('/proc/sys/kernel/yama/ptrace_scope').read_text().strip()})"
    return ""
