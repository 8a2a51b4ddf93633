"""Seconds and counts of GPU kernels, copies and memsets by class, from Kineto files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from argus import _native
from argus.traces.detect import detect, note_other_kind, trace_files
from argus.traces.errors import Notes, TraceError, UnknownFormatError
from argus.traces.kineto_file import KinetoFile

_CATEGORIES = {
    "kernel": None,
    "gpu_memcpy": "memcpy",
    "memcpy": "memcpy",
    "gpu_memset": "memset",
    "memset": "memset",
}
"""Kineto's categories of device work, new and old, and their class where it doesn't hang on the name."""

_MOST_US = float(1 << 53)
"""Longer ones are no durations."""


@dataclass
class Class:
    """What ran of one class; ``seconds`` are summed, also where kernels ran side by side."""

    seconds: float = 0.0
    count: int = 0


@dataclass
class Tally:
    """All classes, also those that did not occur, and the seconds of each name in ``other``."""

    classes: dict[str, Class] = field(
        default_factory=lambda: {name: Class() for name in _native.kernel_classes()}
    )
    other: dict[str, float] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """Of all classes together."""
        return sum(item.seconds for item in self.classes.values())

    @property
    def count(self) -> int:
        """Of all classes together."""
        return sum(item.count for item in self.classes.values())

    def unknown(self) -> list[str]:
        """The names in ``other``, those that took longest first."""
        return sorted(self.other, key=lambda name: (-self.other[name], name))


def tally(
    paths: Sequence[str],
    patterns: object = None,
    progress: Callable[[str], None] = lambda message: None,
) -> tuple[Tally, Notes]:
    """Add up the device work of Kineto files, and of those in folders.

    Args:
        paths: Files and folders.
        patterns: The user's own, as ``read_patterns`` gives them; tried before the built-in rules.
        progress: Told what is being read.

    Returns:
        The sums, and what was left out.

    Raises:
        TraceError: No file holds any device work.
    """
    notes = Notes()
    total = Tally()
    known: dict[str, str] = {}

    def unreadable(error: OSError) -> None:
        notes.add(str(error.filename), error.strerror or str(error))

    for path in trace_files(paths, unreadable):
        progress(f"reading {path}")
        before = total.count
        try:
            if not _is_kineto(path):
                if path in paths:
                    raise TraceError(f"{path}: not a Kineto file; only those hold kernels")
                note_other_kind(notes, path)
                continue
            for event in KinetoFile(path, notes).events():
                _add(total, event, known, patterns, path, notes)
        except TraceError as error:
            notes.add(path, str(error).removeprefix(f"{path}: "))
        except OSError as error:
            notes.add(path, error.strerror or str(error))
        else:
            if total.count == before:
                notes.add(path, "no GPU kernels; profile with ProfilerActivity.CUDA on a machine with a GPU")
    if not total.count:
        raise TraceError("\n".join(notes.lines()) or f"no trace files in {', '.join(paths)}")
    return total, notes


def _is_kineto(path: str) -> bool:
    try:
        return detect(path).content == "kineto"
    except UnknownFormatError:
        return False


def _add(
    total: Tally, event: dict[str, Any], known: dict[str, str], patterns: object, path: str, notes: Notes
) -> None:
    category = str(event.get("cat", "")).lower()
    if event.get("ph") != "X" or category not in _CATEGORIES:
        return
    name, duration = event.get("name"), event.get("dur")
    if not isinstance(name, str) or not isinstance(duration, int | float) or not 0 <= duration <= _MOST_US:
        notes.add(path, "kernels without a name or a valid duration", str(name)[:60])
        return
    seconds = duration / 1e6
    found = _CATEGORIES[category] or known.get(name)
    if found is None:
        found = known[name] = _native.kernel_class(name, patterns)
    item = total.classes[found]
    item.seconds += seconds
    item.count += 1
    if found == "other":
        total.other[name] = total.other.get(name, 0.0) + seconds
