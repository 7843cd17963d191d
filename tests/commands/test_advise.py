"""``graphnorm advise``: from predictions, an analysis, a comparison, a store; and its mistakes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from fakes import FakeFleet, fill
from graphnorm.analysis import conditions, regularity, spectra
from graphnorm.data import load, synthetic
from graphnorm.paper.noise_and_alpha import noise_plan
from graphnorm.settings import Settings
from graphnorm.study import Store, load_result, make_plan

Run = Callable[..., tuple[int, str, str]]
TREES = "synthetic:trees"


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_predictions(run: Run) -> None:
    code, out, err = run("advise", "synthetic:regular")
    assert code == 0, err
    assert "Try graph first, and not instance" in out
    assert "[certain: " in out
    assert "1,000 graphs" in err
    code, out, err = run("advise", "synthetic:regular", "--json")
    assert (code, err) == (0, "")
    advice = json.loads(out)
    assert (advice["first"], advice["clear"], advice["measured"]) == ("graph", False, None)
    assert advice["statements"][0]["certainty"] == "certain"
    assert advice["facts"]["regularity"]["share_regular"] == 1


def test_an_analysis_is_read(run: Run, tmp_path: Path) -> None:
    graphs = load(TREES)
    layers = [{"layer": "last", "batch_size": 9, "epochs": [0, 4], "relative_deviation": [0.1, 0.3]}]
    summaries = {
        "regularity": regularity(graphs, range(30)).summary(),
        "spectrum": {"condition": conditions(spectra(graphs, range(30))).summary()},
        "noise": {"layers": layers},
    }
    parts = {part: {"summary": summary} for part, summary in summaries.items()}
    content = {"dataset": graphs.name, "fingerprint": graphs.fingerprint, "parts": parts}
    file = tmp_path / "analysis-synthetic-trees" / "analysis.json"
    file.parent.mkdir()
    file.write_text(json.dumps(content))
    code, out, err = run("advise", TREES, "--json")
    assert (code, err) == (0, "")
    facts = json.loads(out)["facts"]
    assert facts["regularity"]["graphs"] == 30
    assert facts["noise"] == layers[-1]
    assert run("advise", TREES)[2] == ""  # nothing had to be looked at
    file.write_text(json.dumps(content | {"fingerprint": "another"}))
    facts = json.loads(run("advise", TREES, "--json")[1])["facts"]
    assert (facts["regularity"]["graphs"], facts["noise"]) == (400, None)
    code, out, err = run("advise", TREES, "--analysis", file.parent)
    assert (code, out) == (2, "")
    assert "the analysis of other graphs" in err


@pytest.mark.usefixtures("fleets")
def test_a_comparison_is_read(run: Run) -> None:
    small = ("--norms", "graph,none", "--epochs", "12", "--workers", "1", "--device", "cpu")
    code, _, err = run("compare", "synthetic:regular", *small, "--out", "compared", "--json")
    assert code == 0, err
    compared = load_result("compared")
    code, out, err = run("advise", "synthetic:regular", "--study", "compared", "--json")
    assert code == 0, err
    advice = json.loads(out)
    assert (advice["basis"], advice["first"]) == ("measurement", compared.best)
    assert advice["measured"] == compared.to_dict()
    assert compared.study in advice["statements"][0]["evidence"]
    code, out, err = run("advise", TREES, "--study", "compared")
    assert (code, out) == (2, "")
    assert "compares other graphs" in err


def test_the_study_of_a_store_that_has_trained_most(run: Run, fleets: type[FakeFleet]) -> None:
    """Of these graphs, and by a protocol that has scores."""
    graphs, other = load(TREES), synthetic.trees(50)
    norms = ("none", "graph")
    with Store("a.db") as store:
        few = fill(store, make_plan(graphs, Settings(norms=norms, folds=2, epochs=3)))
        most = fill(store, make_plan(graphs, Settings(norms=norms, folds=3, epochs=3)))
        fill(store, make_plan(graphs, Settings(norms=norms, folds=10, epochs=3)), lambda trial: trial.fold == 0)
        fill(store, make_plan(other, Settings(norms=norms, folds=10, epochs=3)))
        fill(store, noise_plan(graphs, 8, 3))
    assert most.finished > few.finished
    code, out, err = run("advise", TREES, "--study", "a.db", "--json")
    assert code == 0, err
    advice = json.loads(out)
    assert (advice["basis"], advice["measured"]["study"]) == ("measurement", most.name)
    assert advice["measured"]["spec"]["folds"] == 3
    code, out, err = run("advise", "synthetic:regular", "--study", "a.db")
    assert (code, out) == (2, "")
    assert "no study here has results for these graphs" in err
    assert most.name in err
    assert fleets.made == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trees", "--study", "absent"], "no such file"),
        (["trees", "--study", "empty"], "there is no result in it"),
        (["trees", "--study", "damaged"], "this is no result"),
        (["trees", "--study", "text.db"], "text.db"),
        (["trees", "--analysis", "empty"], "no analysis here"),
        (["trees", "--analysis", "damaged"], "this is no analysis"),
        (["absent/folder"], "no such file"),
    ],
)
def test_mistakes(run: Run, tmp_path: Path, arguments: list[str], message: str) -> None:
    for name in ("empty", "damaged"):
        (tmp_path / name).mkdir()
    for name in ("result.json", "analysis.json"):
        (tmp_path / "damaged" / name).write_text("[]")
    (tmp_path / "text.db").write_text("a text")
    code, out, err = run("advise", *arguments)
    assert (code, out) == (2, "")
    assert re.search(message, err)
    assert len(err.splitlines()) == 1
