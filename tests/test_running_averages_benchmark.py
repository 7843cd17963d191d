"""The script that measures what becomes of errors of BatchNorm's running averages."""

import csv
import sys

from benchmarks import running_averages as script


def test_exact_averages_differ_by_the_factor_of_the_variance_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(script, "DATASETS", ("synthetic:regular",))
    out = tmp_path / "rows.csv"
    monkeypatch.setattr(sys, "argv", ["running_averages", "--seeds", "2", "--epochs", "1", "--out", str(out)])
    script.main()
    with out.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["seed"] for row in rows] == ["0", "1"]
    nodes = int(script.load("synthetic:regular").num_nodes)
    for row in rows:
        assert {"live", "running", "exact", "error_layer_8"} <= row.keys()
        assert 0.1 / nodes < float(row["error_layer_1"]) < 10 / nodes  # half of n/(n − 1) − 1, but for ε and β
