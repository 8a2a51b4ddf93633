"""Which time range is meant."""

from __future__ import annotations

import time
from datetime import datetime, timezone

from argus import ruleset
from argus.report.model import Axis

_MOST_STEPS = 400
"""Points of a curve: more than a page can show apart would only make it larger."""
LEAST_STEP = 5.0
_END_OF_TIME = 253_402_300_800.0
"""Year 10000."""


class SpanError(ValueError):
    """The range is none; the message says why."""


def moment(text: str) -> float:
    """Unix seconds of ``now``, a number of Unix seconds or an ISO 8601 time (UTC where no zone is given).

    Raises:
        SpanError: It is none of these.
    """
    if text == "now":
        return time.time()
    try:
        number = float(text)
    except ValueError:
        pass
    else:
        if not 0 <= number < _END_OF_TIME:
            raise SpanError(f"{text!r} is no time in Unix seconds")
        return number
    try:
        parsed = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise SpanError(f"{text!r} is no time; write 2026-03-01T14:05:00Z, Unix seconds, or now") from None
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=timezone.utc)).timestamp()


def span(begin: str | None, end: str | None, last: str | None) -> Axis:
    """The axis for ``--from``, ``--to`` and ``--last``.

    Raises:
        SpanError: They contradict each other, or the range is empty.
    """
    until = moment(end or "now")
    if begin is not None:
        if last is not None:
            raise SpanError("give either --from or --last, not both")
        since = moment(begin)
    else:
        try:
            since = until - ruleset.parse_duration(last or "30m")
        except ruleset.RulesetError as error:
            raise SpanError(f"--last: {error}") from None
    if since >= until:
        raise SpanError("the range is empty: --from must be before --to")
    return Axis(since, until, max(LEAST_STEP, (until - since) / _MOST_STEPS))
