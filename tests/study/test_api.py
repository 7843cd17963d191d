"""``graphnorm.compare`` and ``graphnorm.search``: what they write, how they go on, and what they refuse."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.study.own_norm import Half

import graphnorm
from fakes import FakeFleet, compare
from graphnorm.data import load, synthetic
from graphnorm.errors import GraphnormError, StudyError
from graphnorm.layers import REGISTRY
from graphnorm.models import BASELINES, MODELS, NORMALIZED
from graphnorm.settings import Grid, Running
from graphnorm.study import Result, Store, settle
from graphnorm.study.api import STORE, train
from graphnorm.study.result import WRITTEN
from graphnorm.study.worker import pack_code, register_code
from graphnorm.training import Trial

TREES = load("synthetic:trees")
SMALL = synthetic.regular(num_graphs=24, seed=0)
TINY: dict[str, Any] = {"folds": 2, "epochs": 2, "hidden": 4, "layers": 2, "batch_size": 8}


def trained(fleets: type[FakeFleet]) -> list[str]:
    return [fleet.trials[0].norm for fleet in fleets.made]


def stop_at(fleets: type[FakeFleet], norm: str, epoch: int) -> None:
    """Press Ctrl-C while a normalization trains."""

    def press(fleet: FakeFleet) -> None:
        if (fleet.trials[0].norm, fleet.epoch) == (norm, epoch):
            fleets.trouble = staticmethod(lambda fleet: None)
            signal.raise_signal(signal.SIGINT)

    fleets.trouble = staticmethod(press)


def files(folder: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes()
        for path in folder.iterdir()
        if path.suffix not in (".db-shm", ".db-wal", ".db-work")
    }


# The folder of a comparison


def test_files(fleets: type[FakeFleet], tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    result = compare(out=out)
    assert json.loads((out / "result.json").read_text()) == json.loads(json.dumps(result.to_dict()))
    assert (out / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (out / "curves.svg").read_text()
    rows = {name: len((out / name).read_text().splitlines()) for name in ("result.csv", "scores.csv", "curves.csv")}
    assert rows == {"result.csv": 6, "scores.csv": 51, "curves.csv": 1 + 5 * 3 * 20}
    assert {path.name for path in out.iterdir()} == {*WRITTEN, STORE, f"{STORE}-work"}
    with Store(out / STORE, writable=False) as store:
        (study,) = store.studies()
        assert (study.name, study.counts) == (result.study, {"done": 50})


def test_the_same_call_trains_nothing_and_more_norms_train_only_those(fleets: type[FakeFleet], tmp_path: Path) -> None:
    first = compare(norms="none,graph", out=tmp_path)
    assert compare(norms="none,graph", out=tmp_path).to_dict() == first.to_dict()
    assert trained(fleets) == ["none", "graph"]
    wider = compare(norms="graph,batch,none", baselines="wl", out=tmp_path)
    assert trained(fleets) == ["none", "graph", "batch"]
    assert list(wider.norms) == ["graph", "batch", "none"]
    assert list(wider.baselines) == ["wl"]
    assert wider.norms["none"].scores == first.norms["none"].scores
    assert list(Result.from_dict(json.loads((tmp_path / "result.json").read_text())).norms) == list(wider.norms)


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ({"lr": 0.1}, "its lr is 0.01, not 0.1"),
        ({"epochs": 21}, "its epochs is 20, not 21"),
        ({"model": "gcn"}, "its model is gin, not gcn"),
        ({"folds": 9}, "its folds is 10, not 9"),
        ({"seeds": 2}, "its seeds is 1, not 2"),
        ({"data": replace(TREES, labels=TREES.labels.flip(0))}, "its graphs"),
    ],
)
def test_another_comparisons_folder_is_refused(
    fleets: type[FakeFleet], tmp_path: Path, change: dict[str, Any], difference: str
) -> None:
    compare(norms="none,graph", out=tmp_path)
    before = files(tmp_path)
    with pytest.raises(GraphnormError, match=difference) as caught:
        compare(**{"norms": "none,graph", "out": tmp_path} | change)
    assert "--overwrite" in (caught.value.remedy or "")
    assert files(tmp_path) == before
    assert trained(fleets) == ["none", "graph"]
    again = compare(**{"norms": "none", "out": tmp_path, "overwrite": True} | change)
    assert list(again.norms) == ["none"]
    with Store(tmp_path / STORE, writable=False) as store:
        assert len(store.studies()) == 1


def test_what_is_in_the_way(fleets: type[FakeFleet], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(GraphnormError, match="a file, not a folder"):
        compare(out=tmp_path / "file")
    (tmp_path / "empty").mkdir()
    assert list(compare(norms="none", out=tmp_path / "empty").norms) == ["none"]
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / STORE).write_bytes(b"no store" * 1000)
    with pytest.raises(GraphnormError, match="damaged"):
        compare(norms="none", out=tmp_path / "damaged")
    assert list(compare(norms="none", out=tmp_path / "damaged", overwrite=True).norms) == ["none"]


def test_a_failure_while_writing_leaves_the_old_file(
    fleets: type[FakeFleet], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compare(norms="none", out=tmp_path)
    before = (tmp_path / "result.json").read_bytes()
    monkeypatch.setattr(Path, "write_text", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        compare(norms="none", out=tmp_path)
    assert (tmp_path / "result.json").read_bytes() == before
    assert not list(tmp_path.rglob(".*"))


# Arguments


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"nroms": "graph"}, TypeError, "did you mean 'norms'"),
        ({"labels": [0, 1]}, TypeError, "did you mean 'target'"),
        ({"resume": True}, TypeError, "no option 'resume'"),
        ({"protocol": "given"}, GraphnormError, "no split of its own"),
        ({"device": "cuda:99"}, GraphnormError, "no device cuda:99"),
        ({"device": "meta"}, GraphnormError, "cpu or cuda"),
        ({"data": TREES, "data_root": "x"}, GraphnormError, "loaded already"),
    ],
)
def test_mistakes(fleets: type[FakeFleet], options: dict[str, Any], kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words) as caught:
        compare(**options)
    assert not fleets.made
    assert not isinstance(caught.value, GraphnormError) or caught.value.remedy


# With real training


def test_regular_graphs_are_told_apart_by_batchnorm_alone(tmp_path: Path) -> None:
    """The degree is the class, and all that a regular graph has to tell: the full shift removes it (Proposition 1)."""
    graphs = synthetic.regular(num_graphs=80, seed=0)
    options: dict[str, Any] = {"folds": 6, "epochs": 6, "hidden": 16, "layers": 3, "batch_size": 16}
    result = compare(graphs, norms="instance,batch", out=tmp_path, **options)
    assert result.norms["instance"].mean < 75
    assert result.norms["batch"].mean > 90
    assert result.pair("batch", "instance").significant
    assert result.convergence.slowest == "instance"
    again = compare(graphs, norms="batch", **options | {"workers": 2})
    assert again.norms["batch"].scores == result.norms["batch"].scores  # whatever processes train it


def test_several_values_are_tuned_for_each_normalization(fleets: type[FakeFleet], tmp_path: Path) -> None:
    def by_rate(trial: Trial, epoch: int) -> dict[str, float]:
        """The best rate is 0.1 for one normalization, and 0.01 for the other."""
        best = trial.lr == {"graph": 0.1, "batch": 0.01}[trial.norm]
        return {"loss": 1.0, "train": 0.7, "valid": (0.9 if best else 0.6) + 0.01 * trial.fold, "test": 0.5}

    fleets.values = staticmethod(by_rate)
    result = compare(norms="graph,batch", lr=[0.1, 0.01], folds=3, out=tmp_path / "out")
    assert {name: score.chosen for name, score in result.norms.items()} == {"graph": {"lr": 0.1}, "batch": {"lr": 0.01}}
    assert (result.trials, result.spec["grid"]["lr"]) == (12, [0.1, 0.01])
    assert "2 configurations" in result.title
    again = compare(norms="graph,batch", lr=(0.1, 0.01), folds=3, out=tmp_path / "out")
    assert again.study == result.study
    for wrong, words in (([0.1, 0.1], "twice"), ([], "no value"), ([0.1, -1.0], "lr is -1.0")):
        with pytest.raises(GraphnormError, match=words):
            compare(lr=wrong)
    found = graphnorm.search(
        TREES, "quick", lr=[0.1, 0.01], norms="graph", folds=2, workers=1, device="cpu", progress=False,
        store=tmp_path / "s.db",
    )  # fmt: skip
    assert found.spec["grid"]["lr"] == [0.1, 0.01]
    nothing: Any = None
    with pytest.raises(TypeError, match="grid must be"):
        graphnorm.search(TREES, nothing, store=tmp_path / "s.db")


def test_the_last_batch_is_evened_out_but_under_the_protocol_of_the_paper() -> None:
    assert settle(TREES).last_batch == "keep"
    assert settle(TREES, protocol="fair").last_batch == "even"
    assert settle(TREES, protocol="fair", last_batch="drop").last_batch == "drop"


def test_every_model_trains() -> None:
    graphs = synthetic.trees(num_graphs=12, seed=0)
    tags = torch.zeros(graphs.num_nodes, 1, dtype=torch.uint8)
    graphs = replace(graphs, tags=tags, x=None, cardinalities=(2,))
    for model in NORMALIZED:
        result = compare(graphs, model=model, norms="graph", **TINY | {"epochs": 1, "layers": 3})
        assert 0 <= result.norms["graph"].mean <= 100, model
    result = compare(graphs, norms="none", baselines=",".join(BASELINES), **TINY | {"epochs": 1})
    assert result.errors == ()
    for name, score in result.baselines.items():
        assert 0 <= score.mean <= 100, name
        assert max(score.epochs) <= (len(MODELS[name].kernel.candidates) if MODELS[name].kernel else 1)


@pytest.fixture
def half() -> Iterator[None]:
    graphnorm.register_norm("half", Half)
    graphnorm.register_norm("lambda", lambda channels: Half(channels))
    yield
    del REGISTRY["half"], REGISTRY["lambda"]


def test_own_code_is_tried_once(fleets: type[FakeFleet], monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []
    monkeypatch.setattr("graphnorm.study.runner.try_norm", lambda norm, *_: tried.append(norm))
    compare(TREES, norms="graph,batch", folds=2)
    assert tried == ["graph", "batch"]


@pytest.mark.usefixtures("half")
def test_own_normalizations_travel_to_worker_processes(tmp_path: Path) -> None:
    here = compare(SMALL, norms="half,lambda,graph", **TINY)
    register_code(pack_code([Trial(dataset="d", norm="half")]))  # as each worker does
    there = compare(SMALL, norms="half,lambda,graph", **TINY | {"workers": 2})
    assert here.errors == there.errors == ()
    for name, score in here.norms.items():
        assert there.norms[name].scores == pytest.approx(score.scores)
    options: dict[str, Any] = {"store": tmp_path / "s.db", "progress": False, "workers": 2, "device": "cpu", **TINY}
    found = graphnorm.search(SMALL, Grid("g", {"dropout": (0.0, 0.5)}), norms="half,graph", **options)
    assert found.counts == {"done": 8}


def test_a_normalization_that_fails_is_refused_before_anything_is_written(
    fleets: type[FakeFleet], tmp_path: Path
) -> None:
    class Failing(Half):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise RuntimeError("not today")

    graphnorm.register_norm("failing", Failing)
    calls: list[Callable[[], object]] = [
        lambda: compare(norms="graph,failing", out=tmp_path / "out"),
        lambda: graphnorm.search(TREES, "quick", norms="failing", store=tmp_path / "s.db"),
        lambda: train(TREES, Trial(dataset="t", norm="failing"), tmp_path / "m.safetensors", Running()),
    ]
    try:
        for call in calls:
            with pytest.raises(GraphnormError, match="not today"):
                call()
    finally:
        del REGISTRY["failing"]
    assert not fleets.made
    assert not list(tmp_path.iterdir())


# One model


def test_a_training_that_ended_before_its_model_was_written_is_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = Trial(dataset="regular", folds=2, epochs=2, hidden=4, layers=2, batch_size=8)
    with monkeypatch.context() as patch:
        patch.setattr("graphnorm.study.api.save_model", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            train(SMALL, trial, tmp_path / "m.safetensors", Running(device="cpu", workers=1))
    train(SMALL, trial, tmp_path / "m.safetensors", Running(device="cpu", workers=1))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.safetensors"]


def test_a_training_that_fails_leaves_one_line_and_no_file(tmp_path: Path, fleets: type[FakeFleet]) -> None:
    def fail(fleet: FakeFleet) -> None:
        raise RuntimeError("no such luck")

    fleets.trouble = staticmethod(fail)
    with pytest.raises(StudyError, match="RuntimeError: no such luck") as caught:
        train(SMALL, Trial(dataset="r", folds=2), tmp_path / "m.safetensors", Running(device="cpu", workers=1))
    assert "Traceback" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_in_a_thread_signals_are_left_to_the_main_one(fleets: type[FakeFleet]) -> None:
    with ThreadPoolExecutor() as pool:
        assert pool.submit(compare, norms="graph").result().counts == {"done": 10}


def test_from_the_top() -> None:
    assert {"compare", "search", "Result", "load_model"} <= set(dir(graphnorm))
    with pytest.raises(AttributeError, match="nonsense"):
        graphnorm.nonsense


def test_a_dataframe_is_compared(fleets: type[FakeFleet]) -> None:
    pandas, _ = pytest.importorskip("pandas"), pytest.importorskip("rdkit")
    frame = pandas.DataFrame({"smiles": ["C" * n for n in range(1, 61)], "y": [n / 7 for n in range(60)]})
    result = compare(frame, target="y", norms="none", epochs=1, folds=2, hidden=8, workers=1, progress=False)
    assert (result.spec["graphs"], result.spec.get("origin")) == (60, None)
    with pytest.raises(GraphnormError, match="symmetrise cannot be used with a DataFrame"):
        compare(frame, symmetrise=True)
