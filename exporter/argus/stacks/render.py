"""From what was read of a rank to a page in one of the formats."""

from __future__ import annotations

from collections.abc import Sequence

from argus.flight.recording import Recording
from argus.stacks import formats

FORMATS = ("text", "folded", "speedscope")


class RenderError(ValueError):
    """There is nothing to show, or too much; the message says what to do."""


def render(found: Sequence[Recording], format_: str) -> str:
    """The stacks of the one rank that was found.

    Raises:
        RenderError: There are several, or its stacks are not sampled.
    """
    if len(found) > 1:
        ranks = ", ".join(str(each.state.identity.rank) for each in found)
        raise RenderError(f"say which rank: {ranks}")
    if not found:
        raise RenderError("that rank can't be read any more")
    recording = found[0]
    identity, table = recording.state.identity, recording.stacks
    if table is None:
        raise RenderError(
            f"rank {identity.rank} of run {identity.run_id} does not sample its stacks: ARGUS_STACKS is 0 "
            "there, there was no room, or its argus-gpu is older; its standard error says which"
        )
    if not table.stacks:
        raise RenderError(
            f"rank {identity.rank} has no samples yet; ask again in a second. If that does not help, "
            "something keeps the GIL, or the process is stopped: argus stacks --dump looks from outside"
        )
    if format_ == "folded":
        return formats.folded(table)
    name = (
        f"rank {identity.rank} ({identity.role}) of run {identity.run_id} on {identity.node or 'this node'}"
    )
    interval_s = recording.state.stack_interval_ns / 1e9
    if format_ == "speedscope":
        return formats.speedscope(table, name, interval_s)
    notes = [] if recording.up else ["its process is gone; these are its last minutes"]
    age_s = (recording.state.now_ns - table.end_ns) / 1e9
    if recording.up and age_s > max(2.0, 5 * interval_s):
        notes.append(
            f"no sample for {age_s:.0f} s: something keeps the GIL, or the process is stopped; "
            "argus stacks --dump looks from outside"
        )
    return "".join(f"{note}\n" for note in notes) + formats.text(table, name, interval_s)
