"""ARGUS traces: a row per occurrence, in Parquet, CSV or JSON Lines (docs/traces.md)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from argus import _native
from argus.traces.columns import Chunk, Codes, Floats
from argus.traces.errors import Notes
from argus.traces.table import (
    FARTHEST,
    KINDS,
    LONGEST,
    MOST_ITERATIONS,
    MOST_RANKS,
    NONE,
    Collective,
    Rank,
    Table,
    empty_rows,
)

REQUIRED = ("rank", "iteration", "phase", "start", "duration")
COORDINATES = ("dp", "tp", "pp", "cp", "ep")
OPTIONAL = (
    "kind", "run_id", "role", "node", *COORDINATES, "world_size", "op", "group", "group_id", "members",
    "bytes", "work",
)  # fmt: skip


def read(chunks: Iterable[Chunk], table: Table, notes: Notes, run: str | None = None) -> None:
    """Add a file's rows to the table; with ``run``, only those of this run_id.

    Rows without a valid rank, iteration, phase, start or duration are left out
    and noted.
    """
    for chunk in chunks:
        _chunk(chunk, table, notes, run)


def _chunk(chunk: Chunk, table: Table, notes: Notes, run: str | None) -> None:
    rank = chunk.numbers("rank", notes)
    iteration = chunk.numbers("iteration", notes)
    start = chunk.numbers("start", notes)
    duration = chunk.numbers("duration", notes)
    names, name_texts = chunk.texts("phase")
    named = np.array([bool(text.strip()) for text in name_texts])[names]
    checks = (
        ("rank", (rank >= 0) & (rank < MOST_RANKS) & (rank == np.floor(rank))),
        ("iteration", (iteration >= 0) & (iteration < MOST_ITERATIONS) & (iteration == np.floor(iteration))),
        ("phase", named),
        ("start", np.abs(start) <= FARTHEST),
        ("duration", (duration >= 0) & (duration <= LONGEST)),
    )
    valid = np.ones(chunk.rows, dtype=bool)
    for column, passed in checks:
        bad = valid & ~passed
        if bad.any():
            where = f"row {chunk.first_row + int(np.argmax(bad))}"
            notes.add(chunk.path, f"rows without a valid {column}", where, int(bad.sum()))
        valid &= passed
    if run is not None and "run_id" in chunk:
        codes, texts = chunk.texts("run_id")
        valid &= np.array([text == run for text in texts])[codes]
    if not valid.any():
        return
    rows = empty_rows(int(valid.sum()))
    rows["rank"] = rank[valid]
    rows["iteration"] = iteration[valid]
    rows["start"] = start[valid]
    rows["duration"] = duration[valid]
    rows["bytes"] = chunk.numbers("bytes", notes)[valid]
    rows["work"] = chunk.numbers("work", notes)[valid]
    rows["phase"] = _phases(chunk, table, notes, names, name_texts)[valid]
    _ranks(chunk, table, notes, rank, valid)
    rows["collective"] = _collectives(chunk, table, notes)[valid]
    table.add(rows)


def _phases(chunk: Chunk, table: Table, notes: Notes, names: Codes, texts: list[str]) -> Codes:
    kinds, kind_texts = chunk.texts("kind")
    pair, which = np.unique(names * len(kind_texts) + kinds, return_inverse=True)
    index = np.empty(len(pair), dtype=np.int64)
    for position, code in enumerate(pair.tolist()):
        name, kind = texts[code // len(kind_texts)].strip(), kind_texts[code % len(kind_texts)].strip()
        if kind not in KINDS:
            if kind:
                example = f"{kind!r:.40} of phase {name!r:.40}; the kinds are {', '.join(KINDS)}"
                notes.add(chunk.path, "unknown kind, taken as mixed", example)
            kind = "mixed" if kind else _native.infer_kind(name)
        index[position] = table.phase(name, kind)
    codes: Codes = index[which.reshape(-1)]
    return codes


def _collectives(chunk: Chunk, table: Table, notes: Notes) -> Codes:
    ops, op_texts = chunk.texts("op")
    groups, group_texts = chunk.texts("group")
    ids, id_texts = chunk.texts("group_id")
    members = chunk.numbers("members", notes)
    members = np.where(np.isfinite(members), members, -1).astype(np.int64)
    keys = np.stack((ops, groups, ids, members), axis=1)
    distinct, which = np.unique(keys, axis=0, return_inverse=True)
    index = np.empty(len(distinct), dtype=np.int64)
    for position, (op, group, group_id, count) in enumerate(distinct.tolist()):
        if not op_texts[op]:
            index[position] = NONE
            continue
        name = group_texts[group] or "world"
        key = Collective(op_texts[op], name, id_texts[group_id] or f"{name}-0", count)
        index[position] = table.collective(key)
    codes: Codes = index[which.reshape(-1)]
    return codes


def _ranks(chunk: Chunk, table: Table, notes: Notes, rank: Floats, valid: npt.NDArray[np.bool_]) -> None:
    """Identity of ranks not seen before, from their first row."""
    numbers, first = np.unique(np.where(valid, rank, -1), return_index=True)
    fresh = [
        (int(r), int(i)) for r, i in zip(numbers, first, strict=True) if r >= 0 and int(r) not in table.ranks
    ]
    if not fresh:
        return
    texts = {name: chunk.texts(name) for name in ("run_id", "role", "node")}
    whole = {name: chunk.numbers(name, notes) for name in (*COORDINATES, "world_size")}
    for number, row in fresh:
        identity = Rank(number)
        for name, (codes, values) in texts.items():
            setattr(identity, name, values[codes[row]])
        for name, column in whole.items():
            if np.isfinite(column[row]):
                setattr(identity, name, int(column[row]))
        table.ranks[number] = identity
