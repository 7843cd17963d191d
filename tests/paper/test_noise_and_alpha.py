"""Batch noise and the learned α: trained by the runner, measured along the way, and read from the store."""

from __future__ import annotations

import math
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fakes import outcome
from graphnorm.analysis import alpha_along_training, noise_along_training
from graphnorm.data import Images, synthetic
from graphnorm.errors import StudyError
from graphnorm.paper import figures
from graphnorm.paper.image_fleet import IMAGE_LAYERS, IMAGES, _moved, normalized
from graphnorm.paper.item import AlphaRuns, ImageRuns, Item, NoiseRuns, Part
from graphnorm.paper.noise_and_alpha import (
    GRAPH_LAYERS,
    alpha_plan,
    alpha_runs,
    image_plan,
    noise_plan,
    noise_runs,
    read_alpha,
    read_noise,
)
from graphnorm.paper.output import NothingThereError
from graphnorm.paper.reproduce import Reproduction
from graphnorm.settings import Running
from graphnorm.study import Callback, Plan, Stopped, Store, run
from graphnorm.study.local_engine import WorkerProcesses
from graphnorm.study.reading import read
from graphnorm.study.runner import Driver
from graphnorm.training import Progress

TREES, REGULAR = "synthetic:trees", "synthetic:regular"
GRAPHS = synthetic.trees(24)
_random = torch.Generator().manual_seed(0)
_pixels = torch.randint(256, (10, 3, 8, 8), generator=_random, dtype=torch.uint8)
_labels = torch.randint(10, (10,), generator=_random)
PICTURES = Images(_pixels[:8], _labels[:8], _pixels[8:], _labels[8:], lossy=True)


def pictures() -> Plan:
    """ResNet18 on eight images, two steps an epoch."""
    plan = image_plan(2, PICTURES)
    return replace(plan, trials=(replace(plan.trials[0], batch_size=4),), probe=replace(plan.probe, batch_size=4))


KINDS: dict[str, tuple[Plan, Any]] = {
    "noise": (noise_plan(GRAPHS, 8, 2), GRAPHS),
    "alpha": (alpha_plan(GRAPHS, 2), GRAPHS),
    "images": (pictures(), PICTURES),
}


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    """As worker processes have: more of them add numbers up in another order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphnorm.paper.reproduce.load", lambda name, _: replace(GRAPHS, name=name))
    monkeypatch.setattr("graphnorm.paper.reproduce.load_cifar10", lambda _: PICTURES)
    monkeypatch.setattr("graphnorm.study.runner.STEP_SECONDS", 1e-9)  # one epoch for each question


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "a.db") as opened:
        yield opened


def here(plan: Plan, data: Any, store: Store, *callbacks: Callback, workers: int = 1) -> None:
    run(plan, data, store, Running(device="cpu", workers=workers), callbacks=callbacks)


@pytest.fixture(scope="module", params=KINDS)
def trained(
    request: pytest.FixtureRequest, _one_thread: None, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Plan, Any, Any]:
    """A plan, its data, and what an undisturbed training in this process leaves of it."""
    plan, data = KINDS[request.param]
    with Store(tmp_path_factory.mktemp("store") / "a.db") as store:
        here(plan, data, store)
        return plan, data, left(plan, store)


def left(plan: Plan, store: Store) -> list[dict[str, Any]]:
    """Curves and looks of every trial."""
    records = store.records(plan, curves=("loss", "valid", "train"))
    assert [record.trial for record in records] == list(plan.trials)
    return [{**record.curves, **store.seen(record.trial)} for record in records]


def check_equal(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.keys() == theirs.keys()
        for name, values in theirs.items():
            np.testing.assert_array_equal(ours[name], values, err_msg=name)


# Training


def test_what_is_seen(trained: tuple[Plan, Any, Any]) -> None:
    """A look at the untrained model and after every epoch, by layer."""
    plan, _, found = trained
    layers = {"noise": GRAPH_LAYERS + IMAGE_LAYERS, "alpha": GRAPH_LAYERS}[plan.spec["kind"]]
    for of_trial in found:
        assert of_trial["epochs"].tolist() == [0, 1, 2]
        for name in set(of_trial) & set(layers):
            assert len(of_trial[name]) == 3
            assert np.isfinite(of_trial[name]).all()
            assert (of_trial[name][0] != of_trial[name][2]).any()  # it was trained
    assert set(getattr(plan.probe, "layers", ())) <= found[0].keys()


def test_no_graphs_are_left_to_score_by(store: Store) -> None:
    plan = noise_plan(GRAPHS, 8, 2)
    here(plan, GRAPHS, store)
    store.rows("DELETE FROM curves")  # as `runs prune` leaves a store
    result = read(store, plan)
    assert (result.norms["batch"].finished, result.norms["batch"].choices) == (1, ())
    (finding,) = result.findings
    assert "none is left to score by" in finding.text


def test_as_the_tools_of_the_analysis_see_it(store: Store) -> None:
    """With the same settings, one training of their own gives the same numbers."""
    settings = {"readout": "mean", "self_loops": True, "device": "cpu"}
    plan = noise_plan(GRAPHS, 8, 2)
    here(plan, GRAPHS, store)
    seen = read_noise(store, plan)
    assert seen is not None
    alone = noise_along_training(GRAPHS, epochs=2, batch_size=8, at=(0, 1, 2), watch=GRAPH_LAYERS, **settings)
    for ours, theirs in zip(seen.layers, alone, strict=True):
        np.testing.assert_allclose(ours.relative_deviation, theirs.relative_deviation, rtol=1e-5)
    plan = alpha_plan(GRAPHS, 2)
    here(plan, GRAPHS, store)
    learned = read_alpha(store, plan)
    assert learned is not None
    expected = alpha_along_training(GRAPHS, epochs=2, at=(0, 1, 2), seeds=3, **settings)
    for mine, yours in zip(learned.alphas.values, expected.values, strict=True):
        np.testing.assert_allclose(mine, yours, rtol=1e-5)


class StopAfter(Callback):
    """Presses Ctrl-C after an epoch."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.begun: list[int] = []

    def on_fleet(self, trials: Any, epoch: int) -> None:
        self.begun.append(epoch)

    def on_epoch(self, progress: Progress) -> None:
        if progress.epoch == self.epoch:
            signal.raise_signal(signal.SIGINT)


def test_going_on_after_a_stop_changes_nothing(trained: tuple[Plan, Any, Any], store: Store) -> None:
    plan, data, expected = trained
    stop, again = StopAfter(1), StopAfter(0)
    with pytest.raises(Stopped):
        here(plan, data, store, stop)
    assert store.records(plan) == []
    here(plan, data, store, again)
    assert (stop.begun, again.begun) == ([0], [1])  # the first epoch is not trained again
    check_equal(left(plan, store), expected)


def test_worker_processes_change_nothing(trained: tuple[Plan, Any, Any], store: Store) -> None:
    """Plan, fleet, probe and data go there and back."""
    plan, data, expected = trained
    study = store.add(plan, [range(len(plan.trials))])
    engine = WorkerProcesses(data, ["cpu"])
    try:
        assert Driver(store, study, plan, data).run(engine)
    finally:
        engine.close()
    check_equal(left(plan, store), expected)


def test_a_training_that_nothing_looked_at_is_done_again(trained: tuple[Plan, Any, Any], store: Store) -> None:
    plan, data, expected = trained
    session = store.begin_session(store.add(plan, [[place] for place in range(len(plan.trials))]), "local")
    store.save(session, [outcome(trial) for trial in plan.trials])
    reproduction = Reproduction(store.path, progress=False)
    assert len(reproduction.missing(plan)) == len(plan.trials)
    assert (read_alpha if plan.spec["kind"] == "alpha" else read_noise)(store, plan) is None
    here(plan, data, store)
    check_equal(left(plan, store), expected)
    assert reproduction.missing(plan) == []


def test_images_are_trained_and_scored(store: Store) -> None:
    plan = pictures()
    plan = replace(plan, trials=(replace(plan.trials[0], lr=1e-5),))
    here(plan, PICTURES, store)
    (record,) = store.records(plan, curves=("loss", "valid"))
    assert record.curves["loss"][0] == pytest.approx(math.log(10), rel=0.5)  # ten classes, about guessed
    assert set(record.curves["valid"] * 2) <= {0.0, 1.0, 2.0}  # of two test images
    assert record.seconds > 0
    found = read_noise(store, plan)
    assert found is not None
    assert (found.lossy, [layer.batch_size for layer in found.layers]) == (True, [4] * 4)
    assert [layer.layer for layer in found.layers] == list(IMAGE_LAYERS)


def test_images_are_moved_and_mirrored() -> None:
    images = torch.rand(3, 3, 32, 32)
    moved = _moved(images, torch.tensor([[4, 6, 0], [4, 4, 8], [0, 1, 0]]))  # rows, columns, mirrored or not
    assert moved[0].equal(images[0])
    assert moved[1, :, :30].equal(images[1, :, 2:].flip(2))  # up by two, and mirrored
    assert not moved[1, :, 30:].any()
    assert moved[2, :, 4:, :28].equal(images[2, :, :28, 4:])  # down and left by four
    assert not moved[2, :, :4].any()
    assert moved.is_contiguous(memory_format=torch.channels_last)


def test_images_are_normalized_by_the_training_part() -> None:
    train, test = normalized(PICTURES)
    assert train.mean((0, 2, 3)) == pytest.approx(torch.zeros(3), abs=1e-6)
    assert train.std((0, 2, 3)) == pytest.approx(torch.ones(3), abs=1e-6)
    raw = PICTURES.test_images[0].float() / 255
    colours = PICTURES.train_images.float() / 255
    expected = (raw - colours.mean((0, 2, 3))[:, None, None]) / colours.std((0, 2, 3))[:, None, None]
    torch.testing.assert_close(test[0], expected)


# Items


def item(*parts: Part, make: Any = figures.batch_noise) -> Item:
    return Item(name="small", caption="Small", make=make, parts=parts)


def test_smaller_batches_are_noisier(reproduction: Reproduction) -> None:
    wanted = item(NoiseRuns(datasets=(TREES,), batch_sizes=(4, 12), layers=(0, 1), epochs=1, seeds=2))
    output = reproduction.make(wanted)
    assert set(output.figures) == {""}
    assert [axis.get_ylabel().replace("\n", " ") for axis in output.figures[""].axes[::3]] == [
        f"{TREES}, GIN, batches of {size}" for size in (4, 12)
    ]
    assert output.data is not None
    last: dict[Any, list[Any]] = {}
    for _, _, layer, size, epoch, *numbers in output.data.rows:
        last.setdefault((layer, size), []).extend(numbers[:1] if epoch == 1 else [])
    assert len(last) == 4
    for layer in GRAPH_LAYERS[:2]:
        assert min(last[layer, 4]) > max(last[layer, 12]) > 0
    ends = {(entry["layer"], entry["batch_size"]): entry for entry in output.facts["relative_deviation"]}
    assert {key: entry["relative_deviation"] for key, entry in ends.items()} == last
    for entry in ends.values():
        first, second = entry["relative_deviation"]  # of two seeds
        assert first != second
        for part in ("of_mean", "of_std"):
            assert all(0 < one < whole for one, whole in zip(entry[part], entry["relative_deviation"], strict=True))
    assert output.facts["missing"] == output.facts["remarks"] == []
    assert output.sentences[-1].startswith("Of several seeds the figure shows the first")
    assert {run_["device"] for run_ in output.facts["trainings"].values()} == {"cpu"}
    with Store(reproduction.store, writable=False) as store:
        assert [found.trial for found in noise_runs(store)] == [plan.trials[0] for plan in reproduction.plans(wanted)]
        assert alpha_runs(store) == []


def test_images_beside_graphs(reproduction: Reproduction) -> None:
    wanted = item(NoiseRuns(datasets=(TREES,), batch_sizes=(8,), epochs=1, seeds=1), ImageRuns(epochs=1, seeds=1))
    output, again = reproduction.make(wanted), reproduction.make(wanted, train=False)
    assert list(output.facts["trainings"]) == [f"{TREES}, GIN", f"{IMAGES}, ResNet18"]
    assert output.facts["remarks"] == [f"The images of {IMAGES} went through JPEG."]
    assert not any("several seeds" in sentence for sentence in output.sentences)
    assert (again.data, again.sentences) == (output.data, output.sentences)
    for choice, left in (((TREES,), f"{TREES}, GIN"), ((IMAGES,), f"{IMAGES}, ResNet18")):
        part = reproduction.make(wanted.narrowed(datasets=choice), train=False)
        assert list(part.facts["trainings"]) == [left]
        assert part.facts["missing"] == []


def fill_seen(path: Path, plan: Plan, epochs: int = 2) -> None:
    """Put a training with its looks into a store."""
    at = [epoch for epoch in plan.probe.at if epoch <= epochs]
    looks = np.random.default_rng(0).random((len(at), 8, 5))
    seen = {"epochs": np.array(at)} | dict.fromkeys(plan.probe.layers, looks)
    with Store(path) as store:
        session = store.begin_session(store.add(plan, [[0]]), "local")
        store.save(session, [outcome(plan.trials[0], epochs=epochs, seen=seen)])


def test_figures_come_of_the_store_alone(reproduction: Reproduction, monkeypatch: pytest.MonkeyPatch) -> None:
    """A training that was cut short, and one that is missing, are named."""
    wanted = item(NoiseRuns(datasets=(TREES, REGULAR), epochs=2), ImageRuns(epochs=2))
    with pytest.raises(NothingThereError, match="no results for small"):
        reproduction.make(wanted, train=False)
    fill_seen(reproduction.store, image_plan(2, PICTURES), epochs=1)
    fill_seen(reproduction.store, noise_plan(replace(GRAPHS, name=TREES), 128, 2))
    monkeypatch.setattr("graphnorm.paper.reproduce.run", None)
    output = reproduction.make(wanted, train=False)
    assert set(output.figures) == {""}
    assert len(output.figures[""].axes) == 6
    assert output.facts["missing"] == [f"{TREES}, GIN", f"{REGULAR}, GIN", f"{IMAGES}, ResNet18"]
    assert output.facts["remarks"] == [
        f"1 of 2 epochs: {IMAGES}, ResNet18.",
        f"The images of {IMAGES} went through JPEG.",
        f"1 of 3 seeds: {TREES}, GIN; {IMAGES}, ResNet18.",
        f"0 of 3 seeds: {REGULAR}, GIN.",
    ]
    assert {name: run_["epochs"] for name, run_ in output.facts["trainings"].items()} == {
        f"{TREES}, GIN": 2,
        f"{IMAGES}, ResNet18": 1,
    }
    with Store(reproduction.store, writable=False) as store:
        assert {(found.trial.dataset, found.lossy) for found in noise_runs(store)} == {(TREES, False), (IMAGES, True)}
    with pytest.raises(StudyError, match="no results for small"):  # nothing of this one, in a store of others
        reproduction.make(item(NoiseRuns(datasets=(REGULAR,), epochs=2)), train=False)


def test_a_shorter_training_stands_in_for_one_that_is_missing(reproduction: Reproduction) -> None:
    for epochs in (1, 2, 4):
        fill_seen(reproduction.store, noise_plan(replace(GRAPHS, name=TREES), 128, epochs), epochs)
    fill_seen(reproduction.store, noise_plan(replace(GRAPHS, name=TREES), 64, 3), 3)  # of another batch size
    output = reproduction.make(item(NoiseRuns(datasets=(TREES,), epochs=3, seeds=1)), train=False)
    assert output.facts["trainings"][f"{TREES}, GIN"]["epochs"] == 2
    assert output.facts["remarks"] == [f"2 of 3 epochs: {TREES}, GIN."]


def test_learned_alpha(reproduction: Reproduction, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = item(AlphaRuns((TREES, REGULAR), 1), make=figures.learned_alpha)
    with pytest.raises(NothingThereError, match="no results for small"):
        reproduction.make(wanted, train=False)
    reproduction.train(replace(wanted, parts=(AlphaRuns((TREES,), 1),)))
    monkeypatch.setattr("graphnorm.paper.reproduce.run", None)
    output = reproduction.make(wanted, train=False)
    assert set(output.figures) == {"-synthetic-trees"}
    assert output.facts["missing"] == [REGULAR]
    with pytest.raises(NothingThereError):  # nothing of this one, in a store of others
        reproduction.make(replace(wanted, parts=(AlphaRuns((REGULAR,), 1),)), train=False)
    first = output.facts["alpha"][TREES][GRAPH_LAYERS[0]]["quantiles"]
    assert 0.9 < first["0.05"] < first["0.95"] < 1.1  # after one epoch
    assert first["0.05"] != 1
    assert output.facts["trainings"][TREES]["device"] == "cpu"
    with Store(reproduction.store, writable=False) as store:
        (found,) = alpha_runs(store)
        assert (found.trial.dataset, found.trial.epochs, len(found.records)) == (TREES, 1, 3)
        assert noise_runs(store) == []
