"""Tables of text: CSV and TSV, also compressed with gzip, and Parquet."""

from __future__ import annotations

import csv
import difflib
import gzip
import io
import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from graphnorm.data.archive import decoding, refuse_irregular, too_large, unpacked_limit
from graphnorm.errors import DataError, need

__all__ = [
    "TABLE_SUFFIXES",
    "TARGET_COLUMNS",
    "InputTable",
    "is_table",
    "listed",
    "named_columns",
    "one_column",
    "read_table",
]

TARGET_COLUMNS = ("label", "labels", "class", "y", "target", "active", "activity")
"""Usual names of what is predicted."""
TABLE_SUFFIXES = (".csv", ".tsv", ".parquet", ".csv.gz", ".tsv.gz")


class InputTable(NamedTuple):
    """A table, of text if it is from a file."""

    columns: dict[str, list[Any]]
    """Columns by name, all of one length. A missing value is an empty text or None."""
    lines: list[int]
    """The line of each row in its file; for Parquet the row itself, from 1."""


def is_table(path: str | os.PathLike[str]) -> bool:
    """Whether a path names a table, by its ending.

    >>> is_table("mine.csv.gz"), is_table(Path("MUTAG.zip"))
    (True, False)
    """
    path = Path(path)
    return path.name.lower().endswith(TABLE_SUFFIXES) and not path.is_dir()


def read_table(path: str | os.PathLike[str], max_size: float | None = None) -> InputTable:
    """Read a CSV or TSV file, also compressed with gzip, or a Parquet file; with a header.

    max_size: the most that it may unpack to, in GiB; by default see :func:`~graphnorm.data.archive.unpacked_limit`.
    """
    path = Path(path)
    if not path.exists():
        raise DataError("there is no such file", where=path, remedy="check the path")
    refuse_irregular(path)
    limit = unpacked_limit(path.stat().st_size, max_size)
    table = _read_parquet(path, limit) if path.suffix.lower() == ".parquet" else _read_csv(path, limit)
    if not table.lines:
        raise DataError("the table has no rows", where=path, remedy="give a header and one row for each graph")
    return table


def _read_parquet(path: Path, limit: int) -> InputTable:
    parquet = need("pyarrow.parquet", "reading Parquet", "chem")
    with decoding(path):
        about = parquet.ParquetFile(path).metadata
        if sum(about.row_group(k).total_byte_size for k in range(about.num_row_groups)) > limit:
            raise too_large(path, limit)
        table = parquet.read_table(path)
        if len(set(table.column_names)) < len(table.column_names):
            raise DataError("two columns have the same name", where=path, remedy="rename one")
        columns = {
            name: ["" if value is None else str(value) for value in table[name].to_pylist()]
            for name in table.column_names
        }
    return InputTable(columns, list(range(1, table.num_rows + 1)))


def _read_csv(path: Path, limit: int) -> InputTable:
    with decoding(path), gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise too_large(path, limit)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        problem = f"the text is not UTF-8: {error.reason}"
        raise DataError(problem, where=path, line=line, remedy="save it as UTF-8") from error
    if "\0" in text:
        raise DataError("the text has null bytes: it is binary or UTF-16", where=path, remedy="save it as UTF-8")
    tabs = ".tsv" in path.suffixes
    delimiter = "\t" if tabs else max(",;\t", key=text.partition("\n")[0].count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    largest = csv.field_size_limit(len(text) + 1)  # a SMILES may be longer than the 131,072 characters of the default
    try:
        rows = [(reader.line_num, row) for row in reader if row]
    except csv.Error as error:
        problem = f"the table cannot be read: {error}"
        raise DataError(problem, where=path, line=reader.line_num, remedy="correct the quotes") from error
    finally:
        csv.field_size_limit(largest)
    header = [name.strip() for name in rows[0][1]] if rows else []
    if len(set(header)) != len(header):
        raise DataError("two columns have the same name", where=path, line=1, remedy="rename one")
    for line, row in rows:
        if len(row) != len(header):
            problem = f"the line has {len(row)} instead of {len(header)} fields"
            raise DataError(problem, where=path, line=line, remedy="complete or correct the line")
    del rows[:1]
    return InputTable({name: [row[k] for _, row in rows] for k, name in enumerate(header)}, [line for line, _ in rows])


def one_column(columns: Collection[str], wanted: str, option: str, where: str | Path, what: str = "column") -> str:
    """The wanted column, or an error that lists the columns."""
    if wanted not in columns:
        near = difflib.get_close_matches(str(wanted), columns, n=1)
        known = f"the {what}s are {listed(columns)}" if columns else "there are none"
        hint = f"; did you mean {near[0]!r}?" if near else f"; {known}"
        raise DataError(
            f"there is no {what} {wanted!r}{hint}",
            where=where,
            line=1 if is_table(where) else None,
            remedy=f'name one of them: {option}="…" (--{option})',
        )
    return wanted


def listed(columns: Collection[str], most: int = 30) -> str:
    """Names of columns, for a message."""
    names = [repr(name) for name in columns]
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def named_columns(
    columns: Collection[str], target: str | Sequence[str], where: str, what: str = "column"
) -> tuple[str, ...]:
    """The columns of ``--target``: a name, names with commas between them (and quotes where needed), or a list."""
    if isinstance(target, str):
        target = [target] if target in columns else next(csv.reader([target], skipinitialspace=True), [])
    if not target:
        raise DataError("no target is named", where=where, remedy=f'give a {what}: target="…" (--target)')
    return tuple(dict.fromkeys(one_column(columns, name, "target", where, what) for name in target))
