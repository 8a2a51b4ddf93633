"""A child process that logs to a file, ends with its parent, and is stopped by its own pid."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

_LAUNCHER = Path(__file__).with_name("launcher.py")


class Process:
    """A running program.

    It gets a session of its own, so that Ctrl-C reaches only its parent, which
    stops it in order; should the parent die, the kernel terminates it.  The
    kernel goes by the parent's *thread*: start it from one that stays.
    """

    def __init__(
        self,
        command: Sequence[str | os.PathLike[str]],
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        """Start ``command`` (an absolute program path first); its output is appended to ``log``.

        Raises:
            OSError: The log can't be written.
        """
        self.command = [os.fspath(part) for part in command]
        self.log = log
        launcher = [sys.executable, "-I", "-S", os.fspath(_LAUNCHER), str(os.getpid())]
        with log.open("ab") as output:
            self._popen = subprocess.Popen(
                launcher + self.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=None if env is None else dict(env),
                cwd=cwd,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Process id (the launcher becomes the program, so it is the program's)."""
        return self._popen.pid

    def poll(self) -> int | None:
        """Exit status, or None while it runs."""
        return self._popen.poll()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; nothing happens when it has ended."""
        self._popen.send_signal(number)

    def stop(self, timeout: float = 10.0) -> int:
        """Terminate it, kill it after ``timeout`` seconds, and return its exit status."""
        if self._popen.poll() is None:
            self._popen.terminate()
        return self.wait(timeout)

    def wait(self, timeout: float) -> int:
        """Wait ``timeout`` seconds for its end, then kill it; return its exit status."""
        try:
            return self._popen.wait(timeout)
        except subprocess.TimeoutExpired:
            return self._kill()
        except BaseException:  # a second Ctrl-C: no more patience
            self._kill()
            raise

    def _kill(self) -> int:
        self._popen.kill()
        return self._popen.wait()

    def tail(self, lines: int = 15) -> str:
        """The last lines of its log."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])
