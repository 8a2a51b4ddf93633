"""How many files this process may have open."""

from __future__ import annotations

import resource
from contextlib import suppress

_OWN = 192
"""For connections, sockets, certificates, and what Python itself opens."""


def affordable_segments(wanted: int) -> int:
    """How many segments can be held open, at most ``wanted``; raises the soft limit where that is permitted.

    Without a descriptor left, not even a connection can be accepted any more.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + _OWN
    if soft != resource.RLIM_INFINITY and soft < needed:
        raised = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
            soft = raised
    if soft == resource.RLIM_INFINITY:
        return wanted
    return max(min(wanted, soft - _OWN), 1)
