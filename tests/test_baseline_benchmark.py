"""The script that measures baselines: it goes on where it was stopped, by the clock, the cheapest first."""

import sys

import pytest
from benchmarks import baselines as script


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs the script without training; gives what it measured, and its file."""
    out = tmp_path / "rows.csv"

    def measure(name, dataset, device, workers, epochs):
        if out.exists():
            measured.append(len(script.read(out)))  # rows on disk when the next one begins
        return {"baseline": name, "dataset": dataset, "mean": "1.0", "workers": workers}

    measured: list[int] = []
    monkeypatch.setattr(script, "measure", measure)

    def call(*options):
        monkeypatch.setattr(sys, "argv", ["baselines", "--out", str(out), *options])
        script.main()
        return out

    call.measured = measured
    return call


def test_every_row_is_written_at_once_and_kept(run, capsys):
    run("--baselines", "dgcnn,wl", "--datasets", "MUTAG,COLLAB")
    told = [line.split()[:2] for line in capsys.readouterr().out.splitlines()]
    assert told == [["wl", "MUTAG"], ["dgcnn", "MUTAG"], ["wl", "COLLAB"], ["dgcnn", "COLLAB"]]
    assert run.measured == [1, 2, 3]
    out = run("--baselines", "mlp,wl", "--datasets", "MUTAG")
    assert capsys.readouterr().out.splitlines() == ["mlp MUTAG 1.0 None None None None None None None"]
    there = [(row["baseline"], row["dataset"]) for row in script.read(out)]
    assert there == [("wl", "MUTAG"), ("wl", "COLLAB"), ("mlp", "MUTAG"), ("dgcnn", "MUTAG"), ("dgcnn", "COLLAB")]


def test_nothing_begins_after_the_time(run, capsys):
    run("--minutes", "-1", "--baselines", "wl", "--datasets", "PTC")
    assert capsys.readouterr().out == "left out after -1 minutes: wl PTC\n"


def test_files_are_merged_the_later_one_first(run, tmp_path):
    out = run("--baselines", "wl", "--datasets", "PTC,MUTAG")
    other = tmp_path / "other.csv"
    script.write(other, [{"baseline": name, "dataset": "PTC", "mean": "2.0"} for name in ("wl", "awl")])
    run("--merge", str(other))
    found = {(row["baseline"], row["dataset"]): row["mean"] for row in script.read(out)}
    assert found == {("wl", "MUTAG"): "1.0", ("wl", "PTC"): "2.0", ("awl", "PTC"): "2.0"}


def test_a_row_says_all_that_was_measured(monkeypatch):
    monkeypatch.setattr(script, "load", lambda name: _small(name))
    row = script.measure("mlp", "MUTAG", "cpu", 1, 2)
    assert row.keys() <= set(script.COLUMNS)
    assert (row["epochs"], row["workers"]) == (2, 1)
    assert row["chosen"] in ("epoch=1", "epoch=2")
    assert float(str(row["mean"])) > 30
    kernel = script.measure("wl", "MUTAG", "cpu", 1, None)
    assert str(kernel["chosen"]).startswith("depth=")
    assert kernel["quoted_mean"] == 90.4
    expected = (float(str(kernel["mean"])) - 90.4) / 5.7
    assert float(str(kernel["deviation"])) == pytest.approx(expected, abs=0.06)


def _small(name):
    from graphnorm.data import synthetic

    return synthetic.trees(num_graphs=60, seed=0)
