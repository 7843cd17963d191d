"""The script that measures what a small last batch does."""

import csv
import sys

from benchmarks import last_batches as script


def test_training_sets_differ_in_what_is_left_over_alone():
    cases = script.cases_of("molecules", folds=1, epochs=1, norms=["graph"])
    assert [len(case.split.train) % 128 for case in cases] == [case.left_over for case in cases] == [0, 1, 8, 64]
    assert len({len(case.split.train) // 128 for case in cases}) == 1
    for case in cases[1:]:
        assert case.split.train[: -case.left_over].tolist() == cases[0].split.train.tolist()


def test_a_row_for_every_group(tmp_path, monkeypatch):
    out = tmp_path / "rows.csv"
    arguments = f"last_batches molecules --norms none graph --folds 2 --epochs 1 --out {out}".split()
    monkeypatch.setattr(sys, "argv", arguments)
    script.main()
    with out.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["norm"], row["left_over"]) for row in rows] == [
        (n, k) for n in ("none", "graph") for k in ["0", "1", "8", "64"]
    ]
    assert {row["folds"] for row in rows} == {"2"}
    assert all(0 < float(row["train"]) <= 1 for row in rows)
