"""From recipes to files with the real engine, on small data; a second run finds everything trained."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from graphnorm.paper.images import _moved, image_layers, image_noise_along_training
from graphnorm.paper.laboratory import Laboratory
from graphnorm.paper.recipe import CURVES, Beside, Learning, Recipe, Trainings, Watched
from graphnorm.paper.reported import Reported
from graphnorm.paper.watching import Notebook, watch_images

import graphnorm
from graphnorm.data import Images
from graphnorm.errors import StudyError
from graphnorm.study import baselines

SMALL = Trainings(
    datasets=("synthetic:trees",),
    norms=("none", "graph"),
    grid=CURVES.fixed(epochs=2, lr=1e-3),
    hidden=8,
    folds=2,
)


def recipe(maker: str, item: str = "small", **changes: object) -> Recipe:
    settings: dict[str, object] = {"trained": (SMALL,), "looked_at": ("synthetic:trees",)} | changes
    return Recipe(item=item, caption="Small", maker=maker, **settings)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def laboratory(tmp_path_factory: pytest.TempPathFactory) -> Laboratory:
    return Laboratory(tmp_path_factory.mktemp("store") / "a.db", device="cpu", workers=1, progress=False)


def test_curves_then_scores_of_the_same_trials(
    laboratory: Laboratory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    product = laboratory.make(recipe("curves"))
    assert product.data is not None
    assert len(product.data.rows) == 2 * 2 * 2  # norms, curves, epochs
    assert product.facts["convergence"][0]["members"] == 2
    assert product.facts["studies"][0]["finished"] == 4
    assert product.facts["trained_on"] == ["cpu"]
    product.write(tmp_path)
    assert json.loads((tmp_path / "small.json").read_text())["studies"][0]["spec"]["self_loops"] is True

    monkeypatch.setattr("graphnorm.paper.laboratory.local_engine", None)  # nothing is left to train
    again = laboratory.make(recipe("scores"))
    assert again.table is not None
    assert [row[:5] for row in again.table.rows] == [
        ["synthetic:trees", "gin", "none", "1 of 1", "2 of 2"],
        ["synthetic:trees", "gin", "graph", "1 of 1", "2 of 2"],
    ]
    (planned,) = laboratory.plans(recipe("scores"))
    assert laboratory.missing(planned.plan) == 0


def test_baselines_are_studies_of_the_same_store(laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(baselines.SETTING, "epochs", 2)
    beside = Beside(baselines=("wl", "mlp"), datasets=("synthetic:trees",), protocols=("paper", "fair"), folds=2)
    with_baselines = recipe("scores", beside=beside)
    assert [laboratory.missing(planned.plan) for planned in laboratory.plans(with_baselines)][1:] == [2] * 4
    product = laboratory.make(with_baselines)
    assert product.table is not None
    assert [row[:4] for row in product.table.rows][2:] == [
        ["synthetic:trees", "wl", "baseline", "1 of 1"],
        ["synthetic:trees", "mlp", "baseline", "1 of 1"],
    ]
    cells = product.facts["cells"][2:]
    assert all(40 < cell["mean"] <= 100 and cell["fair"]["mean"] > 40 for cell in cells)
    assert any("settings of their own" in sentence for sentence in product.sentences)
    monkeypatch.setattr("graphnorm.paper.laboratory.local_engine", None)  # nothing is left to train
    assert laboratory.make(with_baselines).table == product.table


def test_baselines_stand_beside_the_numbers_quoted_for_them(
    laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    quoted = {"WL subtree": {"synthetic:trees": Reported(90.0, 1.0, 1)}}
    monkeypatch.setattr("graphnorm.paper.reported.BASELINES", quoted)
    beside = Beside(baselines=("wl",), datasets=("synthetic:trees",), folds=3)
    product = laboratory.make(recipe("scores", trained=(), looked_at=(), beside=beside))
    assert product.table is not None
    (row,) = product.table.rows
    assert row[:5] == ["synthetic:trees", "wl", "baseline", "1 of 1", "3 of 3"]
    assert row[6] == "90.0 ± 1.0"


def test_looking_at_data_without_training(laboratory: Laboratory) -> None:
    product = laboratory.make(recipe("spectra", trained=()))
    assert product.data is not None
    assert {row[2] for row in product.data.rows} == {"Q", "QN"}
    product = laboratory.make(recipe("learned_shift"), quick=True)
    assert set(product.figures) == {"", "-graphs-synthetic:trees"}
    assert 0 <= product.facts["regularity"]["synthetic:trees"]["share_regular"] <= 1


def test_the_command_needs_nothing_that_a_gpu_machine_lacks(tmp_path: Path) -> None:
    """With the packages of the study extra alone; and what was stopped goes on."""
    code = """
import importlib.abc, sys
class Block(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"tyro", "plotly", "pydantic", "ogb", "rdkit", "ray", "duckdb"}:
            raise ModuleNotFoundError(f"{name} is blocked")
sys.meta_path.insert(0, Block())
from graphnorm.paper import recipes
small = recipes.Trainings(datasets=("synthetic:trees",), norms=("graph",), hidden=8, folds=2,
                          grid=recipes.CURVES.fixed(epochs=1))
recipes.RECIPES["fig2"] = recipes.Recipe(item="fig2", caption="Figure 2", maker="curves", trained=(small,))
watched = recipes.Watched(datasets=("synthetic:trees",), epochs=1)
recipes.RECIPES["fig4"] = recipes.Recipe(item="fig4", caption="Figure 4", maker="noise", watched=watched)
learned = recipes.Learning(("synthetic:trees",), 1)
recipes.RECIPES["alpha"] = recipes.Recipe(item="alpha", caption="Alpha", maker="alpha", learned=learned)
from graphnorm.cli import main
options = ["--store", "a.db", "--out", "out", "--device", "cpu", "--workers", "1", "--json"]
assert main(["reproduce", "fig2", "fig4", "alpha", *options]) == 0
assert main(["reproduce", "fig2", "fig4", "alpha", *options, "--no-train"]) == 0
assert main(["reproduce", "fig2", *options, "--dry-run"]) == 0
import benchmarks.batch_noise
"""
    places = [str(Path(graphnorm.__file__).parents[1]), str(Path(__file__).parents[2])]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(places), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for name in ("fig2.pdf", "fig4-synthetic-trees-GIN.png", "alpha-synthetic-trees.png", "alpha.csv"):
        assert done.stdout.count(f"out/{name}") == 2
    assert '"to train": 0' in done.stdout


def test_noise_of_graphs(laboratory: Laboratory) -> None:
    watched = Watched(datasets=("synthetic:trees",), batch_sizes=(8, 64), layers=(0, 1), epochs=1)
    product = laboratory.make(recipe("noise", trained=(), looked_at=(), watched=watched))
    assert set(product.figures) == {f"-synthetic-trees-GIN-batches-of-{size}" for size in (8, 64)}
    assert product.data is not None
    last = {(row[1], row[2]): row[4] for row in product.data.rows if row[3] == 1}
    assert len(last) == 4
    for layer in {layer for layer, _ in last}:
        assert last[layer, 8] > last[layer, 64] > 0  # type: ignore[operator]
    ends = {(entry["layer"], entry["batch_size"]): entry for entry in product.facts["relative_deviation"]}
    assert {key: entry["at_the_end"] for key, entry in ends.items()} == last
    assert all(0 < entry[part] < entry["at_the_end"] for entry in ends.values() for part in ("of_mean", "of_std"))


def few_images() -> Images:
    random = torch.Generator().manual_seed(0)
    images = torch.randint(256, (48, 3, 32, 32), generator=random, dtype=torch.uint8)
    labels = torch.randint(10, (48,), generator=random)
    return Images(train_images=images, train_labels=labels, test_images=images, test_labels=labels, lossy=True)


def test_noise_of_images() -> None:
    layers, losses, seconds, accuracy = image_noise_along_training(
        few_images(), epochs=1, at=[0, 1], watch=image_layers(2), device=torch.device("cpu")
    )
    assert [layer.layer for layer in layers] == ["stem_norm", "blocks.7.second_norm"]
    assert [layer.epochs.tolist() for layer in layers] == [[0, 1]] * 2
    assert (layers[0].mean[1] != layers[0].mean[0]).any()  # it was trained
    assert len(losses) == 1
    assert losses[0] == pytest.approx(math.log(10), rel=0.5)  # ten classes, about guessed
    assert seconds > 0
    assert accuracy * 48 == pytest.approx(round(accuracy * 48), abs=1e-4)


def test_images_are_moved_and_mirrored() -> None:
    images = torch.rand(3, 3, 32, 32)
    moved = _moved(images, torch.tensor([[4, 6, 0], [4, 4, 8], [0, 1, 0]]))  # rows, columns, mirrored or not
    assert moved[0].equal(images[0])
    assert moved[1, :, :30].equal(images[1, :, 2:].flip(2))  # up by two, and mirrored
    assert not moved[1, :, 30:].any()
    assert moved[2, :, 4:, :28].equal(images[2, :, :28, 4:])  # down and left by four
    assert not moved[2, :, :4].any()
    assert moved.is_contiguous(memory_format=torch.channels_last)


def test_what_was_seen_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures come of the file alone; a training that time cut short, and one that is missing, are named."""
    file = tmp_path / "noise.json"
    watched = Watched(datasets=("synthetic:trees",), epochs=2, images=True)
    graphs, images = watched.trainings
    seen = watch_images(few_images(), images, device=torch.device("cpu"), seconds=1e-9)
    assert seen.trained == 1  # the first epoch is begun, as none has taken any time yet
    assert seen.layers[0].epochs.tolist() == [0, 1]
    Notebook(file).add(seen)
    again = Notebook(file).find(images)
    assert again is not None
    np.testing.assert_allclose(again.layers[3].relative_deviation, seen.layers[3].relative_deviation, rtol=1e-5)
    monkeypatch.setattr("graphnorm.paper.laboratory.watch_images", None)
    laboratory = Laboratory(tmp_path / "a.db", device="cpu", progress=False, noise=file)
    wanted = recipe("noise", trained=(), looked_at=(), watched=watched)
    product = laboratory.make(wanted, train=False)
    assert set(product.figures) == {"-CIFAR-10-ResNet18"}
    assert "CIFAR-10, ResNet18 was trained for 1 of 2 epochs." in product.sentences
    assert "Not measured: synthetic:trees." in product.sentences
    assert product.facts["remarks"] == [
        "CIFAR-10, ResNet18 was trained for 1 of 2 epochs.",
        "The images of CIFAR-10 went through JPEG.",
        "Not measured: synthetic:trees.",
    ]
    assert product.facts["watched"]["CIFAR-10, ResNet18"]["device"] == "cpu"
    assert [done for _, _, done, _ in laboratory.apart(wanted)] == [False, False]
    (about_graphs, about_images) = (note for *_, note in laboratory.apart(wanted))
    assert about_graphs == ""
    assert about_images.startswith("CIFAR-10, ResNet18: 1 of 2 epochs are kept, without weights; training begins anew")
    took = float(re.search(r"where these took (\d+) s", about_images)[1])  # type: ignore[index]
    assert float(re.search(r"takes about (\d+) s on cpu", about_images)[1]) == pytest.approx(2 * took, abs=1)  # type: ignore[index]
    assert laboratory.watch(graphs) is not None
    assert [done for _, _, done, _ in laboratory.apart(wanted)] == [True, False]
    monkeypatch.setattr("graphnorm.paper.laboratory.watch_graphs", None)
    assert {one.watching for one in Notebook(file).watched()} == {graphs, images}
    assert set(laboratory.make(wanted, train=False).figures) == {"-CIFAR-10-ResNet18", "-synthetic-trees-GIN"}
    with pytest.raises(StudyError, match="nothing of small"):
        Laboratory(tmp_path / "b.db", device="cpu", progress=False).make(wanted, train=False)


def test_learned_alpha(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    laboratory = Laboratory(tmp_path / "a.db", device="cpu", progress=False)
    wanted = recipe("alpha", trained=(), looked_at=(), learned=Learning(("synthetic:trees", "synthetic:regular"), 1))
    with pytest.raises(StudyError, match="nothing of small"):
        laboratory.make(wanted, train=False)
    assert laboratory.learned("synthetic:trees", 1) is not None
    monkeypatch.setattr("graphnorm.paper.laboratory.learn_alpha", None)
    product = laboratory.make(wanted, train=False)  # from the file
    assert set(product.figures) == {"-synthetic-trees"}
    assert "Not trained: synthetic:regular." in product.sentences
    first = product.facts["alpha"]["synthetic:trees"]["convolutions.0.first_norm"]["quantiles"]
    assert 0.9 < first["0.05"] < first["0.95"] < 1.1  # after one epoch
    assert first["0.05"] != 1
    assert product.facts["learned"]["synthetic:trees"]["device"] == "cpu"


def test_a_file_that_is_no_batch_noise(tmp_path: Path) -> None:
    file = tmp_path / "noise.json"
    file.write_text("[]")
    with pytest.raises(StudyError, match="no file of batch noise"):
        Notebook(file).watched()
