"""Which annotation holds a moment on a thread."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

Mark = tuple[int, int, Any]
"""Begin, end, and what it means."""


class Innermost:
    """Finds the innermost interval at a moment on a thread; the intervals of one thread nest."""

    def __init__(self, marks: dict[object, list[Mark]]) -> None:
        self._begins: dict[object, list[int]] = {}
        self._marks: dict[object, list[Mark]] = {}
        self._parents: dict[object, list[int]] = {}
        for thread, spans in marks.items():
            ordered = sorted(spans, key=lambda span: (span[0], -span[1]))
            self._marks[thread] = ordered
            self._begins[thread] = [span[0] for span in ordered]
            parents: list[int] = []
            stack: list[int] = []
            for index, (begin, _, _) in enumerate(ordered):
                while stack and ordered[stack[-1]][1] <= begin:
                    stack.pop()
                parents.append(stack[-1] if stack else -1)
                stack.append(index)
            self._parents[thread] = parents

    def __call__(self, thread: object, at: int) -> Any:
        if thread not in self._marks:
            return None
        marks, parents = self._marks[thread], self._parents[thread]
        index = bisect_right(self._begins[thread], at) - 1
        while index >= 0 and marks[index][1] <= at:
            index = parents[index]
        return marks[index][2] if index >= 0 else None
