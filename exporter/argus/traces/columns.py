"""Tabular files (Parquet, CSV, JSON Lines; gzip too) as chunks of columns, in bounded memory."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any, AnyStr

import numpy as np
import numpy.typing as npt

from argus.traces.errors import Notes, TraceError
from argus.traces.files import DamagedError, open_bytes

CHUNK_ROWS = 65_536
_LONGEST_LINE = 16 << 20

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]


class Chunk:
    """Some consecutive rows of a file; ``first_row`` counts from 1, a header not counted."""

    def __init__(self, path: str, first_row: int, rows: int, columns: dict[str, Any]) -> None:
        self.path = path
        self.first_row = first_row
        self.rows = rows
        self._columns = columns

    def __contains__(self, name: str) -> bool:
        return name in self._columns

    def numbers(self, name: str, notes: Notes) -> Floats:
        """A column as float64, NaN where it is absent, empty or (noted) not a number."""
        if name not in self._columns:
            return np.full(self.rows, np.nan)
        column = self._columns[name]
        if isinstance(column, np.ndarray):
            if column.dtype.kind in "iufb":
                return column.astype(np.float64)
            column = column.tolist()
        elif not isinstance(column, list):
            column = column.to_pylist()
        try:
            return np.array([np.nan if value in ("", None) else value for value in column], dtype=np.float64)
        except (TypeError, ValueError):
            return self._number_by_number(name, column, notes)

    def _number_by_number(self, name: str, column: list[Any], notes: Notes) -> Floats:
        numbers = np.full(self.rows, np.nan)
        for index, value in enumerate(column):
            try:
                if value not in ("", None):
                    numbers[index] = float(value)
            except (TypeError, ValueError):
                where = f"row {self.first_row + index}, column {name}: {value!r:.60}"
                notes.add(self.path, f"not a number in column {name}", where)
        return numbers

    def texts(self, name: str) -> tuple[Codes, list[str]]:
        """A column as codes into a list of texts; absent and null are the empty text."""
        if name not in self._columns:
            return np.zeros(self.rows, dtype=np.int64), [""]
        column = self._columns[name]
        if isinstance(column, _Dictionary):
            return column.codes, column.values
        if isinstance(column, np.ndarray):
            column = column.tolist()
        index: dict[str, int] = {}
        codes = np.empty(self.rows, dtype=np.int64)
        for position, value in enumerate(column):
            text = "" if value is None else str(value)
            codes[position] = index.setdefault(text, len(index))
        return codes, list(index)


class _Dictionary:
    def __init__(self, codes: Codes, values: list[str]) -> None:
        self.codes = codes
        self.values = values

    def to_pylist(self) -> list[str]:
        return [self.values[code] for code in self.codes]


def parquet_columns(path: str) -> list[str]:
    """Column names of a Parquet file."""
    return list(_parquet(path).schema_arrow.names)


def parquet_chunks(path: str, names: Sequence[str], notes: Notes) -> Iterator[Chunk]:
    """The named columns that a Parquet file has, a part of a row group at a time."""
    file = _parquet(path)
    present = [name for name in names if name in file.schema_arrow.names]
    first_row = 1
    try:
        for batch in file.iter_batches(batch_size=CHUNK_ROWS, columns=present):
            columns = {name: _arrow(batch.column(name)) for name in present}
            yield Chunk(path, first_row, batch.num_rows, columns)
            first_row += batch.num_rows
    except (OSError, ValueError) as error:
        notes.add(path, f"the file is damaged from row {first_row:,} on", str(error))


def _parquet(path: str) -> Any:
    try:
        import pyarrow.parquet  # type: ignore[import-untyped]
    except ImportError as error:
        raise TraceError(
            f"{path}: reading Parquet needs pyarrow: pip install 'argus-gpu[traces]', "
            "or save the trace as CSV or JSON Lines"
        ) from error
    try:
        return pyarrow.parquet.ParquetFile(path)
    except (OSError, ValueError) as error:
        raise TraceError(
            f"{path}: not a readable Parquet file ({error}); write it again, or leave it out"
        ) from error


def _arrow(column: Any) -> Any:
    import pyarrow

    if pyarrow.types.is_string(column.type) or pyarrow.types.is_large_string(column.type):
        column = column.dictionary_encode()
    if pyarrow.types.is_dictionary(column.type):
        codes = np.asarray(column.indices.fill_null(-1), dtype=np.int64)
        values = ["" if value is None else str(value) for value in column.dictionary.to_pylist()]
        if len(codes) and codes.min() < 0:
            codes = np.where(codes < 0, len(values), codes)
            values.append("")
        return _Dictionary(codes, values)
    return column.to_numpy(zero_copy_only=False)


@contextmanager
def _open_text(path: str) -> Iterator[io.TextIOWrapper]:
    with (
        open_bytes(path) as data,
        io.TextIOWrapper(data, encoding="utf-8-sig", errors="replace", newline="") as text,
    ):
        yield text


def csv_columns(path: str) -> list[str]:
    """Column names of a CSV file, from its first line."""
    with _open_text(path) as text:
        try:
            return [name.strip() for name in next(csv.reader(_lines(text)), [])]
        except (DamagedError, csv.Error) as error:
            raise TraceError(f"{path}: no trace that ARGUS knows ({error}); leave it out") from error


def _lines(data: IO[AnyStr]) -> Iterator[AnyStr]:
    """Its lines; what has none, such as a file of another kind, must not fill the memory."""
    while line := data.readline(_LONGEST_LINE):
        if len(line) == _LONGEST_LINE:
            raise DamagedError(f"a line is longer than {_LONGEST_LINE >> 20} MiB")
        yield line


def csv_chunks(path: str, names: Sequence[str], notes: Notes) -> Iterator[Chunk]:
    """The named columns that a CSV file has, ``CHUNK_ROWS`` rows at a time."""
    header = csv_columns(path)
    wanted = [(name, header.index(name)) for name in names if name in header]
    with _open_text(path) as text:
        reader = csv.reader(_lines(text))
        next(reader, None)
        for first_row, records in _batches(path, reader, notes):
            kept = [record for record in records if len(record) == len(header)]
            if len(kept) < len(records):
                bad = next(i for i, record in enumerate(records) if len(record) != len(header))
                where = f"row {first_row + bad} has {len(records[bad])} of {len(header)} columns"
                notes.add(path, "rows of another length than the header", where, len(records) - len(kept))
            columns = {name: [record[position] for record in kept] for name, position in wanted}
            yield Chunk(path, first_row, len(kept), columns)


def json_chunks(path: str, names: Sequence[str], notes: Notes) -> Iterator[Chunk]:
    """The named fields of a JSON Lines file, ``CHUNK_ROWS`` lines at a time."""
    with open_bytes(path) as data:
        for first_row, lines in _batches(path, _lines(data), notes):
            kept: list[dict[str, Any]] = []
            for index, line in enumerate(lines):
                if not line.strip():
                    continue
                try:
                    record = json.loads(line)
                except (ValueError, RecursionError):
                    record = None
                if isinstance(record, dict):
                    kept.append(record)
                else:
                    notes.add(path, "lines that are not JSON objects", f"line {first_row + index}")
            present = {name for record in kept for name in record}
            columns = {name: [record.get(name) for record in kept] for name in names if name in present}
            yield Chunk(path, first_row, len(kept), columns)


def _batches(path: str, records: Iterator[Any], notes: Notes) -> Iterator[tuple[int, list[Any]]]:
    """``records`` in lists, each with the number (from 1) of its first; a file cut short ends early."""
    first_row = 1
    batch: list[Any] = []
    while True:
        try:
            batch.append(next(records))
        except StopIteration:
            break
        except (DamagedError, csv.Error) as error:
            notes.add(path, f"the file is damaged from row {first_row + len(batch):,} on", str(error))
            break
        if len(batch) == CHUNK_ROWS:
            yield first_row, batch
            first_row += len(batch)
            batch = []
    if batch:
        yield first_row, batch
