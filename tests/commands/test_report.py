"""``graphnorm report``: from folders and stores to a file."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from fake_training import FakeTraining
from graphnorm.data import load
from graphnorm.paper.watching import Notebook, learn_alpha
from graphnorm.study.grid import Grid
from graphnorm.study.plan import make_plan
from graphnorm.study.protocol import make_splits
from graphnorm.study.store import Store

pytest.importorskip("plotly")

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def folder(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("graphnorm.training.train", FakeTraining())
    monkeypatch.chdir(tmp_path)
    assert run("compare", "trees", "--epochs", "5", "--folds", "3", "--norms", "none,graph", "--out", "mine")[0] == 0
    return tmp_path / "mine"


def test_a_folder_becomes_a_page(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    monkeypatch.setattr("webbrowser.open", shown.append)
    code, out, err = run("report", "mine", "--out", "page.html", "--open", "--title", "Trees")
    assert code == 0
    assert re.search(r"written +page.html\nsize +[1-5]\.\d MB\nparts +1", out)
    assert "synthetic:trees, gin …" in err
    page = Path("page.html").read_text(encoding="utf-8")
    assert "<title>Trees</title>" in page
    assert "Singular values of graph" in page
    assert shown == [Path("page.html").resolve().as_uri()]


def test_batch_noise_beside_the_store_and_in_an_analysis(run: Run, folder: Path) -> None:
    analyze = ("analyze", "trees", "--device", "cpu", "--epochs", "1", "--graphs", "30", "--parts")
    assert run(*analyze, "alpha")[0] == 0
    assert run("report", "mine", "analysis-synthetic-trees", "--no-graphs")[0] == 0
    assert "The learned α of GraphNorm" in Path("report.html").read_text(encoding="utf-8")
    assert run("report", "mine", "--no-graphs")[0] == 0
    assert "The learned α of GraphNorm" not in Path("report.html").read_text(encoding="utf-8")
    learned = learn_alpha(load("synthetic:trees"), 1, device=torch.device("cpu"))
    Notebook(Path("other.json")).add(learned)
    assert run("report", "mine", "--no-graphs", "--noise", "other.json")[0] == 0
    assert "The learned α of GraphNorm" in Path("report.html").read_text(encoding="utf-8")
    Path("report.html").unlink()

    for arguments, message in (
        (["analysis-synthetic-trees"], "an analysis alone makes no report"),
        (["mine", "--noise", "absent.json"], "there is no such file"),
    ):
        code, _, err = run("report", *arguments)
        assert code == 2
        assert message in err
    assert run(*analyze, "regularity", "--out", "plain")[0] == 0
    assert "neither noise nor alpha" in run("report", "mine", "plain")[2]
    assert run("analyze", "regular", *analyze[2:], "alpha", "--out", "others")[0] == 0
    assert "nothing else on the page is about the graphs" in run("report", "mine", "others")[2]
    assert not Path("report.html").exists()


def test_titles_of_studies_that_would_be_the_same(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    graphs = load("synthetic:trees")
    with Store(Path("graphnorm.db")) as store:
        for lr, protocol in ((1e-2, "paper"), (1e-3, "paper"), (1e-3, "fair")):
            grid = Grid(f"rate {lr}", {"epochs": (2,), "lr": (lr,)})
            plan = make_plan(graphs, grid, norms=["graph"], protocol=protocol, folds=2)
            study = store.add_study(plan.name, plan.spec, plan.trials, [range(2)])
            outcomes = FakeTraining()(graphs, plan.trials, make_splits(graphs, plan.trials))
            store.save(store.begin_session(study, "local"), outcomes)
    assert run("report", "--no-graphs")[0] == 0
    titles = re.findall("<h2>(.*)</h2>", Path("report.html").read_text(encoding="utf-8"))
    assert [re.sub("-.{6}$", "", title) for title in titles] == [
        "synthetic:trees, gin, paper: synthetic:trees-gin-rate 0.01-paper",
        "synthetic:trees, gin, paper: synthetic:trees-gin-rate 0.001-paper",
        "synthetic:trees, gin, fair",
    ]


def test_without_the_graphs(run: Run, folder: Path) -> None:
    assert run("report", "mine", "--no-graphs")[0] == 0
    assert "Singular values" not in Path("report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "there is no store of studies"),
        (["nothing"], "no folder 'nothing' with a comparison, and no store"),
        (["mine/trained"], "no comparison in it"),
        (["mine", "--out", "mine"], "this is a folder"),
    ],
)
def test_mistakes(run: Run, folder: Path, arguments: list[str], message: str) -> None:
    code, out, err = run("report", *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1
    assert not list(folder.parent.glob("*.html"))
