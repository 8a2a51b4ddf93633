"""Runs checks side by side, each in a thread that is left behind where it does not come back."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from argus.doctor.finding import Check, Finding, problem


def examine(checks: Mapping[str, Check], timeout_s: float) -> dict[str, list[Finding]]:
    """What each check found, in the order of ``checks``.

    A check that fails or takes too long is a finding itself; what it found before stands.

    Args:
        checks: By name.
        timeout_s: For all of them together, for they run at the same time.
    """
    found: dict[str, list[Finding]] = {name: [] for name in checks}
    threads = {
        name: threading.Thread(
            target=_run, args=(check, found[name]), name=f"argus-doctor-{name}", daemon=True
        )
        for name, check in checks.items()
    }
    deadline = time.monotonic() + timeout_s
    for thread in threads.values():
        thread.start()
    results = {}
    for name, thread in threads.items():
        thread.join(max(0.0, deadline - time.monotonic()))
        results[name] = list(found[name])
        if thread.is_alive():
            results[name].append(
                problem(
                    f"no answer within {timeout_s:g} s", "something hangs there; try again with --timeout 60"
                )
            )
    return results


def _run(check: Check, found: list[Finding]) -> None:
    try:
        for finding in check():
            found.append(finding)
    except Exception as error:  # the other checks are to be seen in any case
        found.append(
            problem(
                f"the check itself failed: {type(error).__name__}: {error}", "please report it with this line"
            )
        )
