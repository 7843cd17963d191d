"""Export: the trials of studies as a table, for other programs."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graphnorm.errors import MissingDependencyError, StudyError
from graphnorm.files import replacing
from graphnorm.study.store import Store, Study

__all__ = ["export_trials"]


def export_trials(store: Store, studies: Sequence[Study], path: Path, *, curves: bool = False) -> int:
    """Write a row for each trial (with ``curves`` for each of its epochs), as CSV or Parquet by the file's name.

    The file is there wholly or not at all. Gives the number of rows.
    """
    kind = path.suffix.lower()
    if kind not in (".csv", ".parquet"):
        raise StudyError("tables are written as CSV or Parquet", where=path, remedy="name the file .csv or .parquet")
    rows = [row for study in studies for row in _rows(store, study, curves)]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    with replacing(path) as fresh:
        if kind == ".csv":
            with fresh.open("w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, columns, restval="")
                writer.writeheader()
                writer.writerows(rows)
        else:
            _write_parquet(fresh, columns, rows)
    return len(rows)


def _rows(store: Store, study: Study, curves: bool) -> Iterator[dict[str, Any]]:
    for record in store.records(study, curves=("loss", "train", "valid", "test")):
        valid = record.curves.get("valid", np.empty(0, np.float32))
        best = int(np.nanargmax(valid)) if np.isfinite(valid).any() else None
        row = {
            "study": study.name,
            "key": record.trial.key,
            **record.trial.to_dict(),
            "status": record.status,
            "trained_epochs": record.epochs,
            "seconds": record.seconds,
            "device": record.device,
            "finished": record.finished,
            "code": record.code,
        }
        if not curves:
            yield row | {
                "best_epoch": None if best is None else best + 1,
                **{f"best_{name}": None if best is None else float(c[best]) for name, c in record.curves.items()},
            }
            continue
        for epoch in range(record.epochs):
            yield row | {"epoch": epoch + 1} | {name: float(c[epoch]) for name, c in record.curves.items()}


def _write_parquet(path: Path, columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> None:
    try:
        import pyarrow as arrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingDependencyError("pyarrow", "writing Parquet", "chem") from error
    table = arrow.table({name: [row.get(name) for row in rows] for name in columns})
    pyarrow.parquet.write_table(table, path)
