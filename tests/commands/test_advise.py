"""``graphnorm advise``: from predictions, an analysis, a comparison; and its mistakes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from graphnorm import cli
from graphnorm.analysis import conditions, regularity, spectra
from graphnorm.data import load


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHNORM_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("GRAPHNORM_DATA", raising=False)
    monkeypatch.chdir(tmp_path)


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    code = cli.main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_predictions(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "advise", "synthetic:regular")
    assert code == 0, err
    assert "Try graph first, and not instance" in out
    assert "[certain: " in out
    assert "1,000 graphs" in err
    code, out, err = run(capsys, "advise", "synthetic:regular", "--json")
    assert (code, err) == (0, "")
    facts = json.loads(out)
    assert facts["first"] == "graph"
    assert facts["clear"] is False
    assert facts["measured"] is None
    assert facts["statements"][0]["certainty"] == "certain"
    assert facts["facts"]["regularity"]["share_regular"] == 1


def test_an_analysis_is_read(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    graphs = load("synthetic:trees")
    layers = [{"layer": "last", "batch_size": 9, "epochs": [0, 4], "relative_deviation": [0.1, 0.3]}]
    summaries = {
        "regularity": regularity(graphs, range(30)).summary(),
        "spectrum": {"condition": conditions(spectra(graphs, range(30))).summary()},
        "noise": {"layers": layers},
    }
    content = {
        "dataset": graphs.name,
        "fingerprint": graphs.fingerprint,
        "parts": {part: {"summary": summary} for part, summary in summaries.items()},
    }
    file = tmp_path / "analysis-synthetic-trees" / "analysis.json"
    file.parent.mkdir()
    file.write_text(json.dumps(content), encoding="utf-8")
    code, out, err = run(capsys, "advise", "synthetic:trees")
    assert (code, err) == (0, "")  # nothing had to be looked at
    assert "on 30 graphs" in out
    assert "0.30 standard deviations" in out
    content["fingerprint"] = "another"
    file.write_text(json.dumps(content), encoding="utf-8")
    code, out, err = run(capsys, "advise", "synthetic:trees")
    assert code == 0
    assert "on 400 graphs" in out
    code, out, err = run(capsys, "advise", "synthetic:trees", "--analysis", file.parent)
    assert (code, out) == (2, "")
    assert "the analysis of other graphs" in err


def test_a_comparison_is_read(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    shape = ("--hidden", "8", "--layers", "3", "--folds", "2", "--epochs", "12")  # enough to learn something
    small = ("--norms", "graph,none", *shape, "--workers", "1", "--device", "cpu")
    code, _, err = run(capsys, "compare", "synthetic:regular", *small, "--out", "compared", "--json")
    assert code == 0, err
    compared = json.loads((tmp_path / "compared" / "comparison.json").read_text(encoding="utf-8"))
    code, out, err = run(capsys, "advise", "synthetic:regular", "--study", "compared", "--json")
    assert code == 0, err
    advice = json.loads(out)
    assert advice["basis"] == "measurement"
    assert set(advice["measured"]["scores"]) == {"graph", "none"}
    for norm, values in compared["norms"].items():
        assert list(advice["measured"]["scores"][norm].values()) == values["folds"]
        assert advice["measured"]["speed"][norm] == values["convergence"]["area"]
    best = max(compared["norms"], key=lambda norm: compared["norms"][norm]["mean"])
    assert compared["norms"][advice["first"]]["mean"] == compared["norms"][best]["mean"]
    assert "the comparison in compared" in advice["statements"][0]["evidence"]
    code, out, err = run(capsys, "advise", "synthetic:trees", "--study", "compared")
    assert (code, out) == (2, "")
    assert "compares other graphs" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trees", "--study", "absent"], "no such file"),
        (["trees", "--study", "empty"], "no comparison here"),
        (["trees", "--study", "damaged"], "no comparison: "),
        (["trees", "--study", "text.db"], "text.db"),
        (["trees", "--analysis", "empty"], "no analysis here"),
        (["trees", "--analysis", "damaged"], "this is no analysis"),
        (["absent/folder"], "no such file"),
    ],
)
def test_mistakes(capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: list[str], message: str) -> None:
    for name in ("empty", "damaged"):
        (tmp_path / name).mkdir()
    for name in ("comparison.json", "analysis.json"):
        (tmp_path / "damaged" / name).write_text("[]")
    (tmp_path / "text.db").write_text("a text")
    code, out, err = run(capsys, "advise", *arguments)
    assert (code, out) == (2, "")
    assert re.search(message, err)
    assert len(err.splitlines()) == 1


def test_the_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(["advise", "--help"])
    assert stop.value.code == 0
    assert "examples:" in capsys.readouterr().out
