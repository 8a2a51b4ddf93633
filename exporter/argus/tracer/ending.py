"""How this process ends: well, or by an uncaught exception."""

from __future__ import annotations

import atexit
import sys
from collections.abc import Callable
from types import FrameType, TracebackType


class Ending:
    """Watches for the end of the process, and calls ``finish`` there.

    Any end that Python sees is a clean one, ``sys.exit`` included, but for an
    uncaught exception.  Children of multiprocessing have ways of their own: they
    catch the exception, and leave with a status.
    """

    def __init__(self, finish: Callable[[], None]) -> None:
        self.failed = False
        self._finish = finish
        self._before = sys.excepthook
        self._child = _frame_of_child()
        self._at_exit = finish if self._child is None else self._finish_child
        sys.excepthook = self._hook = self._note_failure
        atexit.register(self._at_exit)
        if self._child is not None:
            # Before Python 3.13 forked children leave without atexit.
            from multiprocessing.util import Finalize

            Finalize(None, self._finish_child, exitpriority=0)

    def forget(self) -> None:
        """Stop watching."""
        atexit.unregister(self._at_exit)
        if sys.excepthook is self._hook:
            sys.excepthook = self._before
        self._child = None

    def _note_failure(
        self, kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        self.failed = True
        self._before(kind, error, traceback)

    def _finish_child(self) -> None:
        if self._child is None:
            return
        # Its status, if that is known already; else the exception is being handled.
        status = self._child.f_locals.get("exitcode")
        error = sys.exc_info()[1]
        if status is None and isinstance(error, SystemExit):
            status = error.code or 0
        self.failed = status not in (None, 0) or (status is None and error is not None)
        self._finish()


def _frame_of_child() -> FrameType | None:
    """Where multiprocessing runs this child; None in other processes and threads."""
    process = sys.modules.get("multiprocessing.process")
    if process is None or process.parent_process() is None:
        return None
    bootstrap = process.BaseProcess._bootstrap.__code__
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code is not bootstrap:
        frame = frame.f_back
    return frame
