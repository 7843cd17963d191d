"""From items to outputs, trained into one store or made of what a store has; see also the tests of the command."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fakes import FakeFleet
from graphnorm.data import load, synthetic
from graphnorm.errors import DownloadError, StudyError
from graphnorm.paper import figures, tables
from graphnorm.paper.image_fleet import IMAGES
from graphnorm.paper.item import CURVES, AlphaRuns, Baselines, ImageRuns, Item, NoiseRuns, Trainings
from graphnorm.paper.reproduce import Reproduction, known_datasets
from graphnorm.settings import Grid
from graphnorm.study import paper_numbers
from graphnorm.study.paper_numbers import Reported
from graphnorm.study.plan_from_settings import BASELINE_SETTING
from graphnorm.study.store import Store

TREES, REGULAR = "synthetic:trees", "synthetic:regular"
SMALL: dict[str, Any] = {"datasets": (TREES,), "norms": ("none", "graph"), "folds": 2, "hidden": 8}
SMALL["grid"] = CURVES.fixed(epochs=2, lr=1e-3)


def item(make: Any = tables.scores, changes: dict[str, Any] | None = None, **given: Any) -> Item:
    parts = {"parts": (Trainings(**SMALL | (changes or {})),)}
    return Item(name="small", caption="Small", make=make, **parts | given)


def test_a_normalization_that_failed_is_shown_as_far_as_it_came(
    reproduction: Reproduction, fleets: type[FakeFleet], capsys: pytest.CaptureFixture[str]
) -> None:
    """And every run says so, since it is not tried again by itself."""

    def fail(fleet: FakeFleet) -> None:
        if fleet.trials[0].norm == "graph":
            raise ValueError("no luck")

    fleets.trouble = staticmethod(fail)
    for _ in range(2):
        output = reproduction.make(item())
        assert [(cell["norm"], cell["members"]) for cell in output.facts["cells"]] == [("none", 2), ("graph", 0)]
        assert "2 trials failed (ValueError: no luck); --retry-failed" in capsys.readouterr().err
    (study,) = output.facts["studies"]
    assert (study["trials"], study["finished"], study["spec"]["self_loops"]) == (4, 2, True)
    assert output.facts["cells"] == reproduction.make(item(), train=False).facts["cells"]


def test_baselines_are_studies_of_the_same_store(reproduction: Reproduction, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BASELINE_SETTING, "epochs", 2)
    monkeypatch.setitem(paper_numbers.BASELINES["WL subtree"], TREES, Reported(90.0, 1.0, 1))
    beside = Baselines(baselines=("wl", "mlp"), datasets=(TREES,), protocols=("paper", "fair"), folds=2)
    wanted = item(parts=(beside,))
    assert [len(reproduction.missing(plan)) for plan in reproduction.plans(wanted)] == [2] * 4
    output = reproduction.make(wanted)
    cells = output.facts["cells"]
    assert [(cell["model"], cell["norm"], cell["members"]) for cell in cells] == [
        ("wl", "baseline", 2),
        ("mlp", "baseline", 2),
    ]
    assert all(40 < cell["mean"] <= 100 and cell["fair"]["mean"] > 40 for cell in cells)
    assert [cell["reported"] for cell in cells] == [{"mean": 90.0, "std": 1.0}, None]
    assert any("not tuned" in sentence for sentence in output.sentences)
    monkeypatch.setattr("graphnorm.study.runner.local_engine", None)  # nothing is left to train
    assert reproduction.make(wanted).table == output.table


@pytest.mark.usefixtures("fleets")
def test_a_dataset_is_loaded_once_for_all_its_studies(
    reproduction: Reproduction, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[str] = []

    def count(name: str, root: Any) -> Any:
        loaded.append(name)
        return load(name, root)

    monkeypatch.setattr("graphnorm.paper.reproduce.load", count)
    reproduction.train(item(changes={"datasets": (TREES, REGULAR), "models": ("gin", "gcn")}))
    assert loaded == [TREES, REGULAR]


def test_data_that_cannot_be_had_is_told_before_anything_is_trained(
    reproduction: Reproduction, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def refuse(name: Any, *_: Any, **__: Any) -> None:
        asked.append(getattr(name, "name", name))
        raise DownloadError(f"{asked[-1]} is not here", remedy="get it")

    monkeypatch.setattr("graphnorm.paper.reproduce.load", refuse)
    monkeypatch.setattr("graphnorm.paper.reproduce.obtain", refuse)
    noise = item(parts=(NoiseRuns(), AlphaRuns(("NCI1",)), ImageRuns()))
    with pytest.raises(StudyError, match="synthetic:trees is not here") as caught:
        reproduction.check_data([item(), noise])
    assert asked == [TREES, "PROTEINS", "NCI1", IMAGES]
    assert caught.value.remedy is not None
    assert caught.value.remedy.endswith(", ".join(asked))


# Without training


def test_the_store_stays_as_it_is(reproduction: Reproduction, fill: Any) -> None:
    """Byte by byte, also where only reading is allowed."""
    wanted = item(changes={"grid": Grid("two", {**SMALL["grid"].axes, "lr": (1e-3, 1e-2)})})
    fill(wanted, lambda trial: trial.norm == "none" or trial.lr == 1e-2)
    folder, before = reproduction.store.parent, reproduction.store.read_bytes()
    reproduction.store.chmod(0o444)
    folder.chmod(0o555)
    try:
        first = reproduction.make(wanted, train=False)
        with Store(reproduction.store, writable=False) as store:
            names = {study.name for study in store.studies()}
    finally:
        folder.chmod(0o755)
    assert all(name.startswith("part of") for name in names)  # found by their keys, whatever the study
    assert reproduction.store.read_bytes() == before
    assert reproduction.make(wanted, train=False).data == first.data


@pytest.fixture
def no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRAPHNORM_DATA", raising=False)
    monkeypatch.setenv("GRAPHNORM_CACHE", str(tmp_path / "cache"))


def as_mutag(reproduction: Reproduction, monkeypatch: pytest.MonkeyPatch, seed: int = 0) -> str:
    """Let some graphs be found by this name; gives their fingerprint."""
    graphs = replace(synthetic.trees(num_graphs=40 + seed, seed=seed), name="MUTAG")
    monkeypatch.setattr("graphnorm.paper.reproduce.load", lambda *_: graphs)
    reproduction._held = None
    return graphs.fingerprint


@pytest.mark.usefixtures("no_data")
def test_of_a_store_without_the_graphs(reproduction: Reproduction, fill: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    both = {"protocols": ("paper", "fair"), "folds": 4}
    with monkeypatch.context() as patch:
        as_mutag(reproduction, patch)
        fill(item(changes=both | {"datasets": ("MUTAG",)}))
    output = reproduction.make(item(changes=both | {"datasets": ("MUTAG", "PTC")}), train=False)
    cells = output.facts["cells"]
    assert [(cell["dataset"], cell["norm"], cell["members"]) for cell in cells] == [
        ("MUTAG", norm, 4) for norm in ("none", "graph")
    ]
    assert all(cell["mean"] > 0 and cell["fair"]["mean"] > 0 for cell in cells)
    assert output.facts["missing"] == ["gin under paper on PTC", "gin under fair on PTC"]
    assert [study["spec"]["chance"] for study in output.facts["studies"]] == [50.0, 50.0]
    drawn = item(figures.learned_shift, {"datasets": ("MUTAG",), "folds": 4}, graphs=("MUTAG",))
    output = reproduction.make(drawn, train=False)
    assert set(output.figures) == {""}  # curves, no drawings
    assert output.facts["missing"] == ["drawings of MUTAG"]
    assert "MUTAG" in output.sentences[-1]


@pytest.mark.usefixtures("no_data")
@pytest.mark.parametrize("here", [None, 1, 2, 3])
def test_two_versions_of_a_dataset_in_a_store(
    reproduction: Reproduction, fill: Any, monkeypatch: pytest.MonkeyPatch, here: int | None
) -> None:
    """The one on this machine counts, where it is one of them, else the one with most trials."""
    wanted = item(changes={"datasets": ("MUTAG",), "folds": 4})
    fingerprints = {}
    for seed, folds in ((1, 1), (2, 3), (3, 0)):
        fingerprints[seed] = as_mutag(reproduction, monkeypatch, seed)
        fill(wanted, lambda trial, folds=folds: trial.fold < folds)
    found = [dataset.fingerprint for dataset in known_datasets(reproduction.store)["MUTAG"]]
    assert found == [fingerprints[2], fingerprints[1]]
    if here is not None:
        as_mutag(reproduction, monkeypatch, here)
        monkeypatch.setattr(Reproduction, "_is_here", lambda *_: True)
    (plan,) = reproduction.plans(wanted, train=False)
    assert plan.spec["fingerprint"] == fingerprints[1 if here == 1 else 2]
