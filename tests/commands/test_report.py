"""``graphnorm report``: from folders and stores to a file."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fakes import fill, outcome
from graphnorm.data import load
from graphnorm.files import plain
from graphnorm.paper.noise_and_alpha import alpha_plan
from graphnorm.settings import Grid
from graphnorm.study import Store
from graphnorm.study.plan_from_settings import baseline_plan
from pages import EVIL, ONE, Reader, alpha_run, enter, noise_run

pytest.importorskip("plotly")

Run = Callable[..., tuple[int, str, str]]
TREES = load("synthetic:trees").fingerprint


@pytest.fixture
def folder(run: Run, fleets: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a comparison on trees."""
    monkeypatch.chdir(tmp_path)
    options = ("--epochs", "5", "--folds", "3", "--norms", "none,graph", "--workers", "1", "--device", "cpu")
    assert run("compare", "trees", *options, "--out", "mine")[0] == 0
    return tmp_path / "mine"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A store where the command looks for it."""
    monkeypatch.chdir(tmp_path)
    with Store("graphnorm.db") as store:
        yield store


def page(path: str = "report.html") -> str:
    return Path(path).read_text(encoding="utf-8")


def learn_alpha(store: Store) -> str:
    """Put α along trainings on trees into a store, and give the name of that study."""
    plan = alpha_plan(load("synthetic:trees"), epochs=2)
    study = store.add(plan, [range(len(plan.trials))])
    seen = {"epochs": np.array([0, 2]), "convolutions.0.first_norm": np.array([[1.0, 1.0], [0.5, 0.75]])}
    store.save(store.begin_session(study, "local"), [outcome(trial, seen=seen) for trial in plan.trials])
    return study.name


def chapters() -> list[str]:
    """The normalizations of each part of the page, best first."""
    parts = re.findall("<article.*?</article>", page(), re.DOTALL)
    return [", ".join(re.findall('class="chip".*?data-norm="(.*?)"', part)) for part in parts]


def test_a_folder_becomes_a_page(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    monkeypatch.setattr("webbrowser.open", shown.append)
    code, out, err = run("report", "mine", "--out", "page.html", "--open", "--title", "Trees")
    assert code == 0
    assert re.search(r"written +page.html\nsize +[1-5]\.\d MB\nparts +1", out)
    assert err == "synthetic:trees, gin, paper …\n"
    assert "<title>Trees</title>" in page("page.html")
    assert "Spectrum of graph" in page("page.html")
    assert shown == [Path("page.html").resolve().as_uri()]
    code, out, err = run("report", "mine", "--no-graphs", "--json")
    assert (json.loads(out)["parts"], err) == (1, "")
    assert "Singular values" not in page()
    result = json.loads((folder / "result.json").read_text())
    assert result["verdict"] in Reader(page()).text


# Studies of a store


def test_named_studies_of_one_question_are_one_part(run: Run, folder: Path, store: Store) -> None:
    for name, norm, rates in [("one", "batch", (1e-2,)), ("two", "graph", (1e-2,)), ("less", "graph", (1e-3,))]:
        enter(store, [norm], Grid("rates", {"epochs": (2,), "lr": rates}), name=name)

    def parts(*names: str) -> list[str]:
        assert run("report", *names, "--no-graphs")[0] == 0
        return chapters()

    assert parts("two", "mine", "on", "two", "le") == ["graph, batch", "graph, none", "graph"]
    assert parts("two") == ["graph"]
    assert parts() == ["graph, batch"]  # the other study of graph is a row beside


def test_all_studies(run: Run, store: Store) -> None:
    """By dataset, model and protocol, the largest grid first; the baselines are rows, the rest is left out."""
    for name, model, grid in [
        ("trees", "gin", ONE),
        ("regular", "gin", ONE),
        ("trees", "gcn", ONE),
        ("regular", "gcn", ONE),
        ("trees", "gin", Grid("more", {"epochs": (4,), "lr": (1e-3, 1e-2)})),
    ]:
        enter(store, ["graph"], grid, graphs=load(f"synthetic:{name}"), model=model)
    enter(store, ["graph"], Grid("later", {"epochs": (9,)}), share=0)  # nothing of it is trained yet
    fill(store, baseline_plan(load("synthetic:trees"), "mlp", protocol="paper", folds=3))
    study = learn_alpha(store)
    assert run("report", "--no-graphs")[0] == 0
    assert re.findall("<h2>synthetic:(.*)</h2>", page()) == [
        "trees, gin, paper: 2 configurations",
        "trees, gin, paper: 1 configuration",
        "trees, gcn, paper",
        "regular, gin, paper",
        "regular, gcn, paper",
    ]
    assert page().count("baseline mlp") == 3
    assert [name for name in Reader(page()).charts if "alpha" in name] == ["part-1-alpha"]
    code, _, err = run("report", study)
    assert (code, f"{study} has no scores: it trained on all graphs" in err) == (2, True)


def test_claims_and_tables_at_the_top(run: Run, folder: Path) -> None:
    Path("items").mkdir()
    code, _, err = run("report", "mine", "--no-graphs", "--items", "items")
    assert (code, "neither claims nor tables" in err, Path("report.html").exists()) == (2, True, False)
    Path("items/claims.json").write_text('{"quick": false, "rules": ["So *be* it."], "unjudged": {}, "claims": []}')
    assert run("report", "mine", "--no-graphs", "--items", "items")[0] == 0
    assert page().index("So <em>be</em> it.") < page().index('id="part-1"')


# Trained models


def write_analysis(folder: str, fingerprint: str, *parts: str) -> None:
    noise = [plain(layer.summary()) for layer in noise_run("A", 4).layers]
    found = {"noise": {"layers": noise}, "alpha": {"layers": alpha_run("A").alphas.summary(), "epochs": 3}}
    content = {part: {"text": [f"of {part}"], "summary": found.get(part, {})} for part in parts}
    Path(folder).mkdir()
    written = {"dataset": "A", "fingerprint": fingerprint, "parts": content}
    Path(folder, "analysis.json").write_text(json.dumps(written))


def test_batch_noise_and_alpha(run: Run, folder: Path) -> None:
    def charts(*arguments: str) -> list[str]:
        assert run("report", "mine", *arguments, "--no-graphs")[0] == 0
        return [name for name in Reader(page()).charts if "noise" in name or "alpha" in name]

    write_analysis("analysis", TREES, "noise", "alpha", "regularity")
    assert charts("analysis") == ["part-1-noise-4", "part-1-alpha"]
    assert "of noise" in page()
    assert charts() == []
    with Store("graphnorm.db") as store:
        learn_alpha(store)
    assert charts() == ["part-1-alpha"]
    assert Reader(page()).charts["part-1-alpha"]["traces"][-1]["y"] == [0.625]  # the median
    assert charts("analysis") == ["part-1-noise-4", "part-1-alpha", "part-1-alpha-2"]
    assert charts("--store", "absent.db") == []

    Path("report.html").unlink()
    write_analysis("plain", TREES, "regularity")
    write_analysis("others", "of other graphs", "alpha")
    for arguments, message in (
        (["analysis"], "an analysis alone makes no report"),
        (["mine", "plain"], "neither noise nor alpha"),
        (["mine", "others"], "nothing else on the page is about the graphs of this analysis, A"),
    ):
        code, _, err = run("report", *arguments)
        assert (code, message in err) == (2, True)
    assert not Path("report.html").exists()


# One's own graphs


@pytest.fixture
def own(tmp_path: Path, fleets: type, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table of one's own, in which a class has a name to beware of; graphs are named by other columns than usual."""
    pytest.importorskip("rdkit")
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "private" / "mine.csv"
    path.parent.mkdir()
    evil = EVIL.replace('"', "")
    rows = [f"{'C' * n}O,{evil},1\n{'C' * n},plain,2\n" for n in range(1, 13)]
    path.write_text("smiles,kind,other\n" + "".join(rows))
    return path


TRAINING = (
    "--target",
    "kind",
    "--norms",
    "graph",
    "--folds",
    "2",
    "--epochs",
    "2",
    "--device",
    "cpu",
    "--workers",
    "1",
)


def drawings() -> list[str]:
    """The captions of drawings; each is the text alternative, too."""
    found = re.findall(r'aria-label="Drawing of (.*?)">.*?<figcaption>(.*?)</figcaption>', page(), re.DOTALL)
    assert all(alternative == caption for alternative, caption in found)
    return [caption for caption, _ in found]


@pytest.mark.parametrize("command", ["compare", "search"])
def test_graphs_of_ones_own_are_drawn(run: Run, own: Path, command: str) -> None:
    more = ("--out", "mine") if command == "compare" else ("--grid", "quick")
    assert run(command, own, *TRAINING, *more)[0] == 0
    report = ("report", "mine") if command == "compare" else ("report",)
    assert run(*report)[0] == 0
    assert len(drawings()) == 6
    assert all(
        re.match(r"graph \d+, class (plain|&lt;img src=x onerror=alert\(1\)&gt;.*): ", text) for text in drawings()
    )
    assert any("&lt;img" in text for text in drawings())
    assert "<img" not in page()
    assert str(own.parent) not in page()  # where people keep their data is nobody else's business
    moved = own.rename(own.with_name("moved.csv"))
    code, _, err = run(*report)
    assert (code, f"{own} does not exist any more" in err) == (0, True)
    assert "There is no analysis of these graphs: they are not where they were." in page()
    assert str(own.parent) not in page()
    assert not drawings()
    own.write_text(moved.read_text() + "CCN,plain,1\n")
    assert run(*report)[0] == 0
    assert "the graphs found as mine are not those that were trained on" in page()


# Mistakes


def edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads((folder / "result.json").read_text())
    change(content)
    (folder / "result.json").write_text(json.dumps(content))


@pytest.mark.parametrize("origin", [5, ["mine.csv"], {}, {"name_or_path": 5}, {"name_or_path": ".", "code": "x"}])
def test_a_place_of_graphs_that_cannot_be(run: Run, folder: Path, origin: object) -> None:
    edit(folder, lambda content: content["spec"].update(origin=origin))
    assert run("report", "mine")[0] == 0
    assert "There is no analysis of these graphs: where they are is not written as" in page()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content.update(format="x"), "the format is 'x'"),
        (lambda content: content.pop("norms"), "this is no result: KeyError('norms')"),
        (lambda content: content.update(norms=[]), "this is no result"),
        (lambda content: content.update(norms={"graph": {}}), "this is no result"),
        (lambda content: content.update(spec={}), "this is no result"),
        (lambda content: content.clear(), "this is no result"),
        (lambda content: content["spec"].pop("fingerprint"), "this is no result: KeyError('fingerprint')"),
    ],
)
def test_files_that_are_no_result(
    run: Run, folder: Path, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    edit(folder, change)
    code, _, err = run("report", "mine")
    assert (code, "mine/result.json: " in err, message in err) == (2, True, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "graphnorm.db: there is no store"),
        (["nothing"], "no folder 'nothing' with a comparison, and no store"),
        (["empty"], "empty: there is no comparison in it. Remedy: give another folder"),
        (["reproduced"], "Remedy: graphnorm report --store reproduced/graphnorm.db"),
        (["mine", "--out", "mine"], "this is a folder"),
        (["torn"], "torn/result.json: this is no result"),
    ],
)
def test_mistakes(run: Run, folder: Path, arguments: list[str], message: str) -> None:
    for name in ("empty", "reproduced", "torn"):
        Path(name).mkdir()
    Path("reproduced/graphnorm.db").touch()
    Path("torn/result.json").write_text("{")
    code, out, err = run("report", *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1
    assert not list(folder.parent.glob("*.html"))
