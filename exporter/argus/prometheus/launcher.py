"""Become another program that ends when its parent ends: ``launcher.py PARENT_PID PROGRAM ARGUMENT...``.

A small program of its own, run by path, because the alternative (code between
fork and exec in the parent) is unsafe where the parent has threads.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def die_with_parent(parent: int) -> None:
    """Have this process terminated when the thread that started it ends, or now if ``parent`` is gone."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(0)


if __name__ == "__main__":
    die_with_parent(int(sys.argv[1]))
    os.execv(sys.argv[2], sys.argv[2:])
