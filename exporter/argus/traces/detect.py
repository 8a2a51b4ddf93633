"""Find out what files hold, by content, and read them into one table."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from argus.traces import argus_trace, kineto, operations
from argus.traces.columns import (
    Chunk,
    csv_chunks,
    csv_columns,
    json_chunks,
    parquet_chunks,
    parquet_columns,
)
from argus.traces.errors import Notes, TraceError, UnknownFormatError
from argus.traces.files import DamagedError, open_bytes
from argus.traces.table import Table

_HEAD_BYTES = 1 << 20
_COLUMN_FORMATS = {"parquet": parquet_chunks, "csv": csv_chunks, "jsonl": json_chunks}


@dataclass(frozen=True)
class Source:
    """One file: ``container`` is parquet, csv, jsonl or kineto; ``content`` argus, operations or kineto."""

    path: str
    container: str
    content: str


def load(
    paths: Sequence[str],
    run: str | None = None,
    progress: Callable[[str], None] = lambda message: None,
) -> tuple[Table, Notes]:
    """Read files and folders, all of one run, into a table.

    Args:
        paths: Files, or folders that are searched for trace files.
        run: Read only this run_id of ARGUS traces that hold several.
        progress: Told what is being read.

    Raises:
        TraceError: Nothing could be read, or the files belong to several runs.
    """
    notes = Notes()
    table = Table()
    try:
        reader = kineto.Reader(table, notes)
        errors: list[TraceError] = []
        for path in trace_files(paths, lambda error: errors.append(_unreadable(error))):
            progress(f"reading {path}")
            try:
                _read(detect(path), table, notes, run, reader)
            except TraceError as error:
                if isinstance(error, UnknownFormatError) and path not in paths:
                    note_other_kind(notes, path)
                else:
                    errors.append(error)
            except OSError as error:
                errors.append(TraceError(f"{path}: {error.strerror or error}"))
        if not table.rows:
            raise TraceError(
                "\n".join([str(error) for error in errors] + list(notes.lines())) or _nothing(paths)
            )
        for unreadable in errors:
            notes.add(*_split(str(unreadable)))
        _name_run(table, paths, run)
    except BaseException:
        table.close()
        raise
    return table, notes


def note_other_kind(notes: Notes, path: str) -> None:
    """Count a file that happens to lie in a folder of traces, with the others there."""
    notes.add(os.path.dirname(path), "files of other kinds", os.path.basename(path))


def detect(path: str) -> Source:
    """What a file holds.

    Raises:
        TraceError: None of the formats; the text says what was looked for.
        OSError: It can't be read.
    """
    with open(path, "rb") as raw:
        if raw.read(4) == b"PAR1":
            return Source(path, "parquet", _by_columns(path, parquet_columns(path)))
    head = _head(path)
    if not head.strip():
        raise TraceError(f"{path}: the file is empty; leave it out")
    if head.lstrip()[:1] in (b"{", b"["):
        return _json(path, head)
    return Source(path, "csv", _by_columns(path, csv_columns(path)))


def _head(path: str) -> bytes:
    head = b""
    try:
        with open_bytes(path) as data:
            while len(head) < _HEAD_BYTES:
                block = data.read1(1 << 16)
                if not block:
                    break
                head += block
    except DamagedError as error:
        if not head:
            raise TraceError(
                f"{path}: damaged gzip file ({error}); copy it again, or leave it out"
            ) from error
    return head


def _json(path: str, head: bytes) -> Source:
    first = next(line for line in head.splitlines() if line.strip())
    try:
        record = json.loads(first)
    except (ValueError, RecursionError):
        record = None
    if isinstance(record, dict) and "traceEvents" not in record and len(record) > 1:
        return Source(path, "jsonl", _by_columns(path, list(record)))
    return Source(path, "kineto", "kineto")


def _by_columns(path: str, columns: Sequence[str]) -> str:
    for content, required in (("operations", operations.REQUIRED), ("argus", argus_trace.REQUIRED)):
        if set(required) <= set(columns):
            return content
    missing = [name for name in argus_trace.REQUIRED if name not in columns]
    found = "".join(c if c.isprintable() else "\ufffd" for c in ", ".join(columns[:20])) or "none"
    # A column that is known tells of a trace with a mistake.
    unknown = set(columns).isdisjoint((*argus_trace.REQUIRED, *operations.REQUIRED))
    raise (UnknownFormatError if unknown else TraceError)(
        f"{path}: not a trace that ARGUS knows. An ARGUS trace has the columns "
        f"{', '.join(argus_trace.REQUIRED)} (missing here: {', '.join(missing)}); an operation trace has "
        f"{', '.join(operations.REQUIRED)}. Columns found: {found:.300}. See docs/traces.md"
    )


def _read(source: Source, table: Table, notes: Notes, run: str | None, reader: kineto.Reader) -> None:
    if source.content == "kineto":
        reader.read(source.path)
        return
    names: Sequence[str] = operations.REQUIRED
    if source.content == "argus":
        names = (*argus_trace.REQUIRED, *argus_trace.OPTIONAL)
    chunks: Iterator[Chunk] = _COLUMN_FORMATS[source.container](source.path, names, notes)
    if source.content == "argus":
        argus_trace.read(chunks, table, notes, run)
    else:
        operations.read(chunks, table, notes)


def _unreadable(error: OSError) -> TraceError:
    return TraceError(f"{error.filename}: {error.strerror or error}")


def _refuse(error: OSError) -> None:
    raise _unreadable(error) from error


def trace_files(paths: Sequence[str], unreadable: Callable[[OSError], None] = _refuse) -> Iterator[str]:
    """The files themselves, and those in folders, hidden ones left out, in the order of their names.

    Args:
        unreadable: Told of folders that can't be read, which is a TraceError otherwise.
    """
    for path in paths:
        if not os.path.isdir(path):
            yield path
            continue
        for folder, folders, names in os.walk(path, onerror=unreadable):
            folders.sort()
            for name in sorted(names):
                if not name.startswith(".") and os.path.isfile(os.path.join(folder, name)):
                    yield os.path.join(folder, name)


def _name_run(table: Table, paths: Sequence[str], run: str | None) -> None:
    """Give ranks without a run_id the name of the file or folder."""
    stem = os.path.basename(os.path.abspath(paths[0]))
    if len(paths) > 1:
        parent = os.path.commonpath([os.path.dirname(os.path.abspath(path)) for path in paths])
        stem = os.path.basename(parent)
    elif not os.path.isdir(paths[0]):
        stem = stem.split(".")[0]
    for rank in table.ranks.values():
        rank.run_id = rank.run_id or run or stem or "trace"
        rank.role = rank.role or f"pp{max(rank.pp, 0)}"
    runs = sorted({rank.run_id for rank in table.ranks.values()})
    if len(runs) > 1:
        raise TraceError(
            f"the trace holds {len(runs)} runs ({', '.join(runs[:5])}{', …' if len(runs) > 5 else ''}); "
            "choose one with --run-id"
        )


def _split(message: str) -> tuple[str, str]:
    path, _, reason = message.partition(": ")
    return path, reason or message


def _nothing(paths: Sequence[str]) -> str:
    return f"no trace files in {', '.join(paths)}; the formats are described in docs/traces.md"
