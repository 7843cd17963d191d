"""``graphnorm analyze``: what it writes and says, and that a mistake leaves nothing behind."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from graphnorm.analysis import curvature_along_training, theory
from graphnorm.analysis.parts import PARTS, Subject
from graphnorm.data import synthetic

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_dataset(run: Run, tmp_path: Path) -> None:
    code, out, err = run("analyze", "synthetic:regular", "--graphs", "40", "--xi", "0.1")
    assert code == 0, err
    folder = tmp_path / "analysis-synthetic-regular"
    names = {f"{name}.{kind}" for name in ("spectra", "conditions", "regularity", "typical") for kind in ("png", "svg")}
    assert {path.name for path in folder.iterdir()} == names | {"analysis.json", "summary.md"}
    assert (folder / "spectra.png").read_bytes().startswith(b"\x89PNG")
    numbers = json.loads((folder / "analysis.json").read_text())
    assert numbers["settings"] == {"graphs": 40, "aggregation": "GIN, ξ = 0.1", "seed": 0, "epochs": 20}
    assert list(numbers["parts"]) == ["spectrum", "regularity"]
    assert numbers["parts"]["spectrum"]["summary"]["theorem_1"]["holds"] == 40
    assert numbers["parts"]["regularity"]["summary"]["share_regular"] == 1
    assert len(numbers["parts"]["regularity"]["per_graph"]["signal_kept"]) == 40
    assert "NaN" not in (folder / "analysis.json").read_text()
    page = (folder / "summary.md").read_text()
    for link in re.findall(r"\]\((.*?)\)", page):
        assert (folder / link).exists()
    assert numbers["parts"]["regularity"]["summary"]["share_without_signal"] == 1
    for part in numbers["parts"].values():
        for paragraph in part["text"]:
            assert paragraph in page
            assert paragraph in " ".join(out.split())
    assert "spectrum" in err


def test_chosen_parts_as_json(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = partial(theory.convergence_rates, noise=(0.1,), samples=(200,), seeds=(0,))
    monkeypatch.setattr(theory, "convergence_rates", short)
    arguments = ("--parts", "theory", "regularity", "--out", tmp_path / "a" / "b", "--model", "gcn", "--json")
    code, out, err = run("analyze", "trees", "--graphs", "5", *arguments)
    assert (code, err) == (0, "")
    facts = json.loads(out)
    assert list(facts["parts"]) == ["regularity", "theory"]
    assert facts["parts"]["theory"]["linear_gnn"]["largest_error_of_speed"] < 0.02
    assert (tmp_path / "a" / "b" / "rates.svg").exists()


def test_parts_that_train(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = partial(curvature_along_training, norms=("graph", "none"), hidden=3, layers=2, batch_size=4)
    monkeypatch.setattr("graphnorm.analysis.parts.curvature_along_training", short)
    arguments = ("--parts", "noise", "alpha", "curvature", "--epochs", "1", "--device", "cpu", "--graphs", "40")
    code, out, err = run("analyze", "trees", "--out", tmp_path / "trained", *arguments)
    assert code == 0, err
    numbers = json.loads((tmp_path / "trained" / "analysis.json").read_text())
    assert list(numbers["parts"]) == ["noise", "alpha", "curvature"]
    noise = numbers["parts"]["noise"]["summary"]
    assert noise["batch_size"] == 10
    assert noise["layers"][0]["epochs"] == [0, 1]
    assert f"{noise['layers'][-1]['relative_deviation'][-1]:.2g} after" in out
    alpha = numbers["parts"]["alpha"]["summary"]["layers"]["convolutions.3.second_norm"]
    assert f"convolutions.3.second_norm: {alpha['quantiles']['0.5']:.2f}" in out
    assert set(numbers["parts"]["curvature"]["summary"]["norms"]) == {"graph", "none"}
    for name in ("noise", "alpha", "curvature"):
        assert (tmp_path / "trained" / f"{name}.png").exists()


def test_the_same_seed_gives_the_same_graphs() -> None:
    graphs = synthetic.trees(30)
    first, again, other = (Subject(graphs, 10, seed=seed).ids.tolist() for seed in (1, 1, 2))
    assert first == again != other
    assert sorted(Subject(graphs).ids.tolist()) == list(range(30))


def test_graphs_that_take_too_long_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = synthetic.trees(10)
    monkeypatch.setattr("graphnorm.analysis.parts.affordable", lambda graphs, ids: ids[:7])
    finding = PARTS["spectrum"](Subject(graphs))
    assert "7 of 10 graphs. 3 were left out" in finding.text[0]
    assert len(finding.per_graph["ids"]) == 7


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trees", "--parts", "spectra"], "no part spectra.*choose from spectrum, regularity, theory"),
        (["trees", "--graphs", "0"], "one or more"),
        (["trees", "--epochs", "0"], "0 epochs train nothing"),
        (["trees", "--parts", "alpha", "--device", "abacus"], "no device 'abacus'"),
        (["trees", "--model", "gcn", "--xi", "1"], "neither ξ nor"),
        (["absent/folder"], "no such file"),
        (["trees", "--out", "taken"], "taken"),
        (["trees", "--xi", "nan"], "finite"),
    ],
)
def test_mistakes(run: Run, tmp_path: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "taken").write_text("a file")
    code, out, err = run("analyze", *arguments)
    assert (code, out) == (2, "")
    assert re.search(message, err)
    assert len(err.splitlines()) == 1
    assert {path.name for path in tmp_path.iterdir()} <= {"taken"}


def test_a_failure_leaves_no_empty_folder(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphnorm.analysis.parts.affordable", lambda graphs, ids: ids[:0])
    code, _, err = run("analyze", "trees")
    assert code == 2
    assert "every graph is too large" in err
    assert not (tmp_path / "analysis-synthetic-trees").exists()


def test_the_help_teaches(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        run("analyze", "--help")
    assert stop.value.code == 0
    text = capsys.readouterr().out
    for part in PARTS:
        assert re.search(rf"^  {part} ", text, re.MULTILINE)
    assert "examples:" in text
