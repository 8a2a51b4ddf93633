"""Checks of what stacks from outside need: py-spy, and the right to read another process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from argus.doctor.finding import Finding, note, ok
from argus.stacks.dump import DumpError, dump

_CAP_SYS_PTRACE = 19
_DUMP_S = 8.0
_BY_HAND = "py-spy dump --pid PID, run by the exporter's user, shows more"
_SLEEPER = "print(flush=True); import time; time.sleep(60)"

_SCOPES = {
    "0": "a process may trace others of its user",
    "1": "a process may trace only its descendants, unless it has CAP_SYS_PTRACE",
    "2": "only processes with CAP_SYS_PTRACE may trace others",
    "3": "nobody may trace others",
}


def tracing() -> Iterator[Finding]:
    """Whether an exporter with the rights of this process could take a stack of a hung rank."""
    may = _has_capability()
    scope = _scope()
    told = f"ptrace_scope {scope}: {_SCOPES[scope]}" if scope in _SCOPES else "no ptrace_scope here"
    told += "; this process has CAP_SYS_PTRACE" if may else "; this process has no CAP_SYS_PTRACE"
    if scope == "3":
        yield note(f"{told}; no stacks of hung ranks", "it takes a restart to lower kernel.yama.ptrace_scope")
    elif may or scope in ("0", ""):
        yield ok(told)
    else:
        yield note(
            f"{told}; an exporter like this process takes no stacks of hung ranks",
            "run the exporter as root or with the capability SYS_PTRACE, or set kernel.yama.ptrace_scope=0",
        )
    yield from _trial()


def _trial() -> Iterator[Finding]:
    """Take the stack of a child, which is the least that can be allowed."""
    with subprocess.Popen(
        [sys.executable, "-c", _SLEEPER], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL
    ) as child:
        try:
            assert child.stdout is not None
            child.stdout.readline()
            dump(child.pid, _DUMP_S)
        except DumpError as error:
            said, _, mend = str(error).partition("; ")
            yield note(
                f"no stacks of hung ranks: {said}",
                mend or _BY_HAND,
            )
        else:
            yield ok("py-spy could take the stack of another process")
        finally:
            child.kill()


def _has_capability() -> bool:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return os.geteuid() == 0
    effective = next((line.split()[1] for line in lines if line.startswith("CapEff:")), "0")
    return bool(int(effective, 16) >> _CAP_SYS_PTRACE & 1)


def _scope() -> str:
    try:
        return Path("/proc/sys/kernel/yama/ptrace_scope").read_text().strip()
    except OSError:
        return ""
