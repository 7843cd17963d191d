"""Trials as a table, in CSV or Parquet: a row for each trial, or for each of its epochs."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from graphnorm.errors import StudyError, need
from graphnorm.files import replacing
from graphnorm.study.reading import CURVES
from graphnorm.study.store import Record, Store, Study
from graphnorm.training import metric_of
from graphnorm.training.metrics import implied_task
from graphnorm.training.trial import KINDS

__all__ = ["export_trials"]

Columns = dict[str, type]
"""The names of the columns, and the types of their values; a value may be missing."""
OF_RECORDS: Columns = {
    "status": str,
    "trained_epochs": int,
    "seconds": float,
    "device": str,
    "finished": str,
    "code": str,
}
AT_ONCE = 100_000
"""Rows that are turned into columns together."""


def export_trials(store: Store, studies: Sequence[Study], path: Path, *, curves: bool = False) -> int:
    """Write a row for each trial (with ``curves``, for each epoch) as CSV or Parquet; return the number of rows."""
    kind = path.suffix.lower()
    if kind not in (".csv", ".parquet"):
        raise StudyError("tables are written as CSV or Parquet", where=path, remedy="name the file .csv or .parquet")
    records = [(study.name, record) for study in studies for record in store.records(store.plan(study), curves=CURVES)]
    measured = [name for name in CURVES if any(name in record.curves for _, record in records)]
    columns: Columns = {"study": str, "key": str} | KINDS | OF_RECORDS
    columns |= {"epoch" if curves else "best_epoch": int}
    columns |= {name if curves else f"best_{name}": float for name in measured}
    of_record = _by_epoch if curves else _at_best
    rows = ([*_facts(*named), *values] for named in records for values in of_record(named[1], measured))
    with replacing(path) as fresh:
        return _write_csv(fresh, columns, rows) if kind == ".csv" else _write_parquet(fresh, columns, rows)


def _facts(study: str, record: Record) -> list[Any]:
    trial = record.trial
    about = (record.status, record.epochs, record.seconds, record.device, record.finished, record.code)
    named = {"metric": metric_of(trial).key, "task": trial.task or implied_task(trial.protocol)}
    return [study, trial.key, *(named.get(name, getattr(trial, name)) for name in KINDS), *about]


def _by_epoch(record: Record, measured: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    missing = [None] * record.epochs
    curves = [record.curves[name].tolist() if name in record.curves else missing for name in measured]
    return zip(range(1, record.epochs + 1), *curves, strict=True)


def _at_best(record: Record, measured: Sequence[str]) -> Iterator[list[Any]]:
    valid = record.curves.get("valid", np.empty(0, np.float32))
    if not np.isfinite(valid).any():
        yield [None] * (1 + len(measured))
        return
    best = int(np.nanargmax(metric_of(record.trial).sign * valid))
    yield [best + 1, *(float(record.curves[name][best]) if name in record.curves else None for name in measured)]


def _write_csv(path: Path, columns: Columns, rows: Iterator[list[Any]]) -> int:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        written = 0
        for row in rows:
            writer.writerow(row)
            written += 1
    return written


def _write_parquet(path: Path, columns: Columns, rows: Iterator[list[Any]]) -> int:
    arrow = need("pyarrow", "writing Parquet", "chem")
    kinds = {str: arrow.string(), int: arrow.int64(), float: arrow.float64(), bool: arrow.bool_()}
    schema = arrow.schema([(name, kinds[kind]) for name, kind in columns.items()])
    written = 0
    with need("pyarrow.parquet", "writing Parquet", "chem").ParquetWriter(path, schema) as writer:
        while part := list(islice(rows, AT_ONCE)):
            values = zip(*part, strict=True)
            arrays = [arrow.array(column, field.type) for column, field in zip(values, schema, strict=True)]
            writer.write_table(arrow.Table.from_arrays(arrays, schema=schema))
            written += len(part)
    return written
