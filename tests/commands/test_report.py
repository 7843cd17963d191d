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
    assert "Spectrum of graph" in page
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


@pytest.mark.parametrize(
    ("studies", "told_apart"),
    [
        ([((1e-2,), "graph"), ((1e-3,), "batch")], ["graph", "batch"]),
        ([((1e-2,), "graph"), ((1e-3, 1e-4), "graph")], ["2 configurations", "1 configuration"]),
        (
            [((1e-2,), "graph"), ((1e-3,), "batch"), ((1e-4, 1e-5), "graph")],
            ["2 configurations", "graph; 1 configuration", "batch"],
        ),
        (
            [((1e-2,), "graph"), ((1e-3,), "graph")],
            ["synthetic:trees-gin-rates 0.01-paper", "synthetic:trees-gin-rates 0.001-paper"],
        ),
    ],
    ids=["norms", "configurations", "both", "names"],
)
def test_titles_of_studies_that_would_be_the_same(
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    studies: list[tuple[tuple[float, ...], str]],
    told_apart: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    graphs = load("synthetic:trees")
    with Store(Path("graphnorm.db")) as store:
        for rates, norm, protocol in [(*study, "paper") for study in studies] + [((1e-3,), "graph", "fair")]:
            grid = Grid(f"rates {'-'.join(map(str, rates))}", {"epochs": (2,), "lr": rates})
            plan = make_plan(graphs, grid, norms=[norm], protocol=protocol, folds=2)
            study = store.add_study(plan.name, plan.spec, plan.trials, [range(len(plan.trials))])
            outcomes = FakeTraining()(graphs, plan.trials, make_splits(graphs, plan.trials))
            store.save(store.begin_session(study, "local"), outcomes)
        plan = make_plan(graphs, Grid("later", {"epochs": (3,)}), norms=["graph"], folds=2)
        store.add_study(plan.name, plan.spec, plan.trials, [range(2)])  # nothing of it is trained yet
    assert run("report", "--no-graphs")[0] == 0
    titles = re.findall("<h2>(synthetic:.*)</h2>", Path("report.html").read_text(encoding="utf-8"))
    assert [re.sub("paper-.{6}$", "paper", title) for title in titles] == [
        *(f"synthetic:trees, gin, paper: {text}" for text in told_apart),
        "synthetic:trees, gin, fair",
    ]


def test_named_studies_of_one_question_are_one_part(
    run: Run, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graphs = load("synthetic:trees")
    with Store(Path("graphnorm.db")) as store:
        for name, norm, rates in [("one", "batch", (1e-2,)), ("two", "graph", (1e-2,)), ("less", "graph", (1e-3,))]:
            plan = make_plan(graphs, Grid("rates", {"epochs": (2,), "lr": rates}), norms=[norm], folds=2)
            study = store.add_study(name, plan.spec, plan.trials, [range(len(plan.trials))])
            outcomes = FakeTraining()(graphs, plan.trials, make_splits(graphs, plan.trials))
            store.save(store.begin_session(study, "local"), outcomes)

    def parts(*names: str) -> list[str]:
        assert run("report", *names, "--no-graphs")[0] == 0
        chapters = re.findall("<article.*?</article>", Path("report.html").read_text(encoding="utf-8"), re.DOTALL)
        return [", ".join(re.findall('class="chip".*?data-norm="(.*?)"', chapter)) for chapter in chapters]

    assert parts("two", "mine", "on", "two", "le") == ["batch, graph", "none, graph", "graph"]
    assert parts("two") == ["graph"]
    assert parts() == ["batch, graph"]  # the other study of graph is a row beside


def test_claims_and_tables_at_the_top(run: Run, folder: Path) -> None:
    Path("items").mkdir()
    code, _, err = run("report", "mine", "--no-graphs", "--items", "items")
    assert (code, Path("report.html").exists()) == (2, False)
    assert "neither claims nor tables" in err
    Path("items/claims.md").write_text("# Claims\n\n| claim | here |\n|---|---|\n| It is so. | holds |\n")
    assert run("report", "mine", "--no-graphs", "--items", "items")[0] == 0
    page = Path("report.html").read_text(encoding="utf-8")
    assert page.index("It is so.") < page.index("synthetic:trees, gin</h2>")


def test_studies_of_one_dataset_stand_together(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Store(Path("graphnorm.db")) as store:
        for name, model in [
            ("trees", "gin"),
            ("regular", "gin"),
            ("trees", "gcn"),
            ("regular", "gcn"),
            ("trees", "gin"),
        ]:
            graphs = load(f"synthetic:{name}")
            epochs = len(store.studies()) + 1
            plan = make_plan(
                graphs, Grid(f"for {epochs}", {"epochs": (epochs,)}), model=model, norms=["graph"], folds=2
            )
            study = store.add_study(plan.name, plan.spec, plan.trials, [range(len(plan.trials))])
            outcomes = FakeTraining()(graphs, plan.trials, make_splits(graphs, plan.trials))
            store.save(store.begin_session(study, "local"), outcomes)
    assert run("report", "--no-graphs")[0] == 0
    titles = re.findall("<h2>synthetic:(.*), paper.*</h2>", Path("report.html").read_text(encoding="utf-8"))
    assert titles == ["trees, gin", "trees, gin", "trees, gcn", "regular, gin", "regular, gcn"]


EVIL = "<img src=x onerror=alert(1)>"


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table of one's own, in which a class has a name to beware of; graphs are named by other columns than usual."""
    pytest.importorskip("rdkit")
    monkeypatch.setattr("graphnorm.training.train", FakeTraining())
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "private" / "mine.csv"
    path.parent.mkdir()
    rows = [f"{'C' * n}O,{EVIL},1\n{'C' * n},plain,2\n" for n in range(1, 13)]
    path.write_text("smiles,kind,other\n" + "".join(rows))
    return path


def captions(page: str) -> list[tuple[str, str]]:
    """The text alternative and the caption of every drawing."""
    return re.findall(r'aria-label="Drawing of (.*?)">.*?<figcaption>(.*?)</figcaption>', page, re.DOTALL)


@pytest.mark.parametrize("command", ["compare", "search"])
def test_graphs_of_ones_own_are_drawn(run: Run, own: Path, command: str) -> None:
    options = (own, "--label", "kind", "--norms", "graph", "--folds", "2", "--epochs", "2", "--device", "cpu")
    if command == "compare":
        assert run("compare", *options, "--out", "mine")[0] == 0
        report = ("report", "mine")
    else:
        assert run("search", *options, "--hidden", "4", "--layers", "2", "--grid", "quick", "--workers", "1")[0] == 0
        report = ("report",)
    assert run(*report)[0] == 0
    page = Path("report.html").read_text(encoding="utf-8")
    drawn = captions(page)
    assert len(drawn) == 6
    assert all(alternative == caption for alternative, caption in drawn)
    assert all(re.match(r"graph \d+, class (plain|&lt;img src=x onerror=alert\(1\)&gt;): ", text) for text, _ in drawn)
    assert any("&lt;img" in text for text, _ in drawn)
    assert EVIL not in page
    assert str(own.parent) not in page  # where people keep their data is nobody else's business
    own.rename(own.with_name("moved.csv"))
    code, _, err = run(*report)
    assert code == 0
    assert f"{own} is not there any more" in err
    page = Path("report.html").read_text(encoding="utf-8")
    assert "Nothing is said of the graphs themselves: they are not where they were." in page
    assert str(own.parent) not in page
    assert not captions(page)


def test_other_graphs_at_the_same_place(run: Run, own: Path) -> None:
    options = ("--label", "kind", "--norms", "graph", "--folds", "2", "--epochs", "2", "--device", "cpu")
    assert run("compare", own, *options, "--out", "mine")[0] == 0
    own.write_text(own.read_text() + "CCN,plain,1\n")
    assert run("report", "mine")[0] == 0
    page = Path("report.html").read_text(encoding="utf-8")
    assert "the graphs found as mine are not those that were trained on" in page


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


def test_the_folder_of_a_reproduction(run: Run, tmp_path: Path) -> None:
    code, _, err = run("report", str(tmp_path))
    assert (code, "Remedy: give another folder" in err) == (2, True)
    (tmp_path / "graphnorm.db").touch()
    assert f"Remedy: graphnorm report --store {tmp_path / 'graphnorm.db'}" in run("report", str(tmp_path))[2]
