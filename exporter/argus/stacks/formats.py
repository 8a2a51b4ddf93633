"""A table of stacks as text for people, as folded stacks, and as speedscope's file."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable

from argus.stacks.table import Stack, StackTable

_SHOWN = 12
_TRAINING = "training thread"


def folded(table: StackTable) -> str:
    """Brendan Gregg's folded format, for flamegraph.pl and most other tools: ``a;b;c 42`` a line."""
    lines = []
    for stack in table.stacks:
        functions = ";".join(name.replace(";", ",").replace(" ", "_") for name in stack.functions)
        lines.append(f"{functions} {stack.samples}\n")
    return "".join(lines)


def speedscope(table: StackTable, name: str, interval_s: float) -> str:
    """The JSON of https://www.speedscope.app, a sampled profile for each group of threads, in seconds.

    Args:
        table: The stacks.
        name: What it is of.
        interval_s: Seconds that one sample stands for.
    """
    frames: dict[str, int] = {}
    profiles = []
    for group in _groups(table):
        samples, weights = [], []
        for stack in table.stacks:
            if stack.functions[0] == group:
                samples.append([frames.setdefault(function, len(frames)) for function in stack.functions[1:]])
                weights.append(round(stack.samples * interval_s, 6))
        profiles.append(
            {
                "type": "sampled",
                "name": group,
                "unit": "seconds",
                "startValue": 0,
                "endValue": round(sum(weights), 6),
                "samples": samples,
                "weights": weights,
            }
        )
    document = {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "name": name,
        "exporter": "argus stacks",
        "activeProfileIndex": 0,
        "shared": {"frames": [_frame(function) for function in frames]},
        "profiles": profiles,
    }
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False) + "\n"


def text(table: StackTable, name: str, interval_s: float) -> str:
    """What to read first: categories, and the most frequent stacks with their innermost function first."""
    lines = [
        f"{name}: the last {(table.end_ns - table.begin_ns) / 1e9:.0f} s, "
        f"{table.samples} samples of all threads, one each {interval_s * 1000:.0f} ms"
    ]
    if table.cut:
        lines.append(f"{table.cut} samples found no room for their inner functions")
    for group in _groups(table):
        own = [stack for stack in table.stacks if stack.functions[0] == group]
        total = sum(stack.samples for stack in own)
        lines += ["", f"== {group} ({total} samples)"]
        if group == _TRAINING:
            shares: Counter[str] = Counter()
            for stack in own:
                shares[stack.category] += stack.samples
            lines += [f"{count / total:6.1%}  {category}" for category, count in shares.most_common()]
        lines += _top(own, total)
    return "\n".join(lines) + "\n"


def _top(stacks: list[Stack], total: int) -> Iterable[str]:
    for stack in stacks[:_SHOWN]:
        inner, *outer = reversed(stack.functions[1:])
        where = f" line {stack.line}" if stack.line else ""
        yield ""
        yield f"{stack.samples / total:6.1%}  {inner}{where}  [{stack.category}]"
        yield from (f"        {function}" for function in outer)
    rest = stacks[_SHOWN:]
    if rest:
        yield ""
        yield f"{sum(stack.samples for stack in rest) / total:6.1%}  in {len(rest)} other stacks"


def _groups(table: StackTable) -> list[str]:
    """The training thread first."""
    return sorted(
        {stack.functions[0] for stack in table.stacks}, key=lambda group: (group != _TRAINING, group)
    )


def _frame(function: str) -> dict[str, str]:
    module, colon, name = function.partition(":")
    return {"name": function, "file": module} if colon and name else {"name": function}
