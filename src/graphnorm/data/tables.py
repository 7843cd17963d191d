"""A CSV, TSV or Parquet file as columns of text, with the line each row stands on."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import NamedTuple

from graphnorm.data.files import decoding
from graphnorm.errors import DataError, MissingDependencyError

__all__ = ["SUFFIXES", "Table", "read_table"]

SUFFIXES = (".csv", ".tsv", ".parquet")


class Table(NamedTuple):
    """Columns by name, all of one length, and the line (of a Parquet file: the row, from 1) of each entry."""

    columns: dict[str, list[str]]
    lines: list[int]


def read_table(path: Path) -> Table:
    """Read a table with a header; a missing value is an empty text."""
    if not path.is_file():
        raise DataError("there is no such file", where=path, remedy="check the path")
    table = _parquet(path) if path.suffix == ".parquet" else _csv(path)
    if not table.lines:
        raise DataError("the table has no rows", where=path, remedy="give a header and one row for each graph")
    return table


def _csv(path: Path) -> Table:
    content = path.read_bytes()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(
            f"the text is not UTF-8: {error.reason}",
            where=path,
            line=content[: error.start].count(b"\n") + 1,
            remedy="save it as UTF-8",
        ) from error
    if "\0" in text:
        raise DataError("the text has null bytes: it is binary or UTF-16", where=path, remedy="save it as UTF-8")
    first = text.partition("\n")[0]
    delimiter = "\t" if path.suffix == ".tsv" else max(",;\t", key=first.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        numbered = [(reader.line_num, row) for row in reader if row]
    except csv.Error as error:
        raise DataError(
            f"the table cannot be read: {error}",
            where=path,
            line=reader.line_num,
            remedy="correct the quotes",
        ) from error
    header = numbered[0][1] if numbered else []
    if len(set(header)) != len(header):
        raise DataError("two columns have the same name", where=path, line=1, remedy="rename one")
    for line, row in numbered:
        if len(row) != len(header):
            raise DataError(
                f"the line has {len(row)} of {len(header)} fields",
                where=path,
                line=line,
                remedy="complete the line",
            )
    rows = numbered[1:]
    return Table({name: [row[k] for _, row in rows] for k, name in enumerate(header)}, [line for line, _ in rows])


def _parquet(path: Path) -> Table:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise MissingDependencyError("pyarrow", "reading Parquet", "chem") from error
    with decoding(str(path)):
        table = parquet.read_table(path)
        columns = {
            name: ["" if value is None else str(value) for value in table[name].to_pylist()]
            for name in table.column_names
        }
    return Table(columns, list(range(1, table.num_rows + 1)))
