"""Models on disk: the same weights, the same probabilities, whatever the features."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from graphnorm import load_model, save_model
from graphnorm.data import PackedGraphs, from_networkx, save_packed
from graphnorm.errors import GraphnormError
from graphnorm.training import Fleet, Outcome, Split, Trial, build_model
from graphnorm.training.model_file import SavedModel


def graphs(*, continuous: int = 2, bonds: bool = True) -> PackedGraphs:
    """Twelve paths of two to four nodes, with all kinds of features."""
    sizes = torch.tensor([2, 3, 4] * 4)
    node_ptr = torch.cat([torch.zeros(1, dtype=torch.int64), sizes.cumsum(0)])
    degrees, columns = [], []
    for n in sizes.tolist():
        for i in range(n):
            near = [j for j in (i - 1, i + 1) if 0 <= j < n]
            degrees.append(len(near))
            columns += near
    rows, edges = len(degrees), len(columns)
    generator = torch.Generator().manual_seed(0)
    return PackedGraphs(
        name="paths",
        node_ptr=node_ptr,
        rowptr=torch.tensor([0, *degrees]).cumsum(0),
        col=torch.tensor(columns, dtype=torch.int32),
        labels=torch.arange(12) % 2,
        classes=("even", "odd"),
        tags=torch.randint(0, 3, (rows, 2), generator=generator).to(torch.uint8),
        cardinalities=(3, 4),
        x=torch.randn(rows, continuous, generator=generator) if continuous else None,
        edge_tags=torch.randint(0, 2, (edges, 1), generator=generator).to(torch.uint8) if bonds else None,
        edge_cardinalities=(2,) if bonds else (),
        splits={"train": torch.arange(8), "valid": torch.arange(8, 10), "test": torch.arange(10, 12)},
    )


def trained(data: PackedGraphs, **options: object) -> Outcome:
    trial = Trial(
        dataset=data.name, fingerprint=data.fingerprint, epochs=2, hidden=8, layers=3, batch_size=4, folds=1, **options
    )  # type: ignore[arg-type]
    split = Split(np.arange(8), np.arange(8, 10), np.arange(10, 12))
    fleet = Fleet(data, [trial], [split], device="cpu")
    fleet.advance()
    return fleet.outcomes(keep_state=True)[0]


def saved_and_loaded(folder: Path, data: PackedGraphs, **options: object) -> SavedModel:
    save_model(trained(data, **options), data, folder / "m.safetensors")
    return load_model(folder / "m.safetensors")


@pytest.mark.parametrize(
    ("model", "protocol", "continuous"),
    [("gin", "paper", 2), ("gcn", "paper", 0), ("molecular-gin", "given", 0), ("molhiv-gcn", "paper", 0)],
)
@pytest.mark.parametrize("norm", ["batch", "graph"])
def test_round_trip(tmp_path: Path, model: str, protocol: str, continuous: int, norm: str) -> None:
    data = graphs(continuous=continuous)
    outcome = trained(data, model=model, protocol=protocol, norm=norm)
    path = tmp_path / "model.safetensors"
    save_model(outcome, data, path)
    saved = load_model(path)
    assert saved.trial == outcome.trial
    assert saved.classes == ("even", "odd")
    assert saved.metrics == pytest.approx({k: float(v[-1]) for k, v in outcome.curves.items() if k != "loss"})
    assert not saved.model.training
    probabilities = saved.predict(data)
    assert probabilities.shape == (12, 2)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    np.testing.assert_allclose(saved.predict(data, batch_size=5), probabilities, atol=1e-4)
    direct = build_model(outcome.trial, data)
    direct.load_state_dict(outcome.state)
    direct.eval()
    batch = data.batch(range(12))
    extra = {"edge_attr": batch.edge_tags} if model.startswith("mol") else {}
    with torch.no_grad():
        scores = direct(data.features(batch), batch.edge_index, batch.batch, 12, **extra).double()
    expected = scores.softmax(1) if scores.shape[1] == 2 else torch.cat([(-scores).sigmoid(), scores.sigmoid()], 1)
    np.testing.assert_allclose(probabilities, expected.numpy(), atol=1e-4)
    if protocol == "paper":
        accuracy = (probabilities.argmax(1) == data.labels.numpy())[:8].mean()
        assert accuracy == pytest.approx(saved.metrics["train"])  # as the engine measured it


def test_graphs_of_any_form_are_predicted(tmp_path: Path) -> None:
    data = graphs(bonds=False)
    data = replace(data, tags=None, cardinalities=())
    saved = saved_and_loaded(tmp_path, data)
    expected = saved.predict(data)
    save_packed(data, tmp_path / "paths.safetensors")
    np.testing.assert_array_equal(saved.predict(tmp_path / "paths.safetensors"), expected)
    assert data.x is not None
    ends = data.node_ptr.tolist()
    of_pyg = []
    for k, (first, last) in enumerate(pairwise(ends)):
        batch = data.batch([k])
        of_pyg.append(SimpleNamespace(x=data.x[first:last], edge_index=batch.edge_index, num_nodes=last - first))
    np.testing.assert_allclose(saved.predict(of_pyg), expected, atol=1e-6)
    np.testing.assert_allclose(saved.predict(of_pyg[:1]), expected[:1], atol=1e-6)
    with pytest.raises(TypeError, match="data must be a name, a path, PackedGraphs"):
        saved.predict(5)


def test_labels_by_name_and_by_value(tmp_path: Path) -> None:
    data = replace(graphs(), classes=("1", "nan"))
    saved = saved_and_loaded(tmp_path, data)
    for classes, expected in ((("nan", "1.0"), [1, 0]), (("01", "1"), [0, 0])):
        found = saved.labels(replace(data, classes=classes))
        assert found is not None
        assert found.tolist() == expected * 6
    assert saved.labels(replace(data, classes=("1", "2"))) is None


def test_what_the_file_says(tmp_path: Path) -> None:
    data = graphs()
    saved_and_loaded(tmp_path, data)
    with safe_open(tmp_path / "m.safetensors", framework="np") as file:
        description = file.metadata()["graphnorm"]
    assert data.fingerprint in description
    assert '"format": "graphnorm-model-4"' in description


@pytest.mark.parametrize(
    ("model", "other", "message"),
    [
        ("gin", {"continuous": 0}, r"continuous features of nodes 2; paths has none"),
        ("molecular-gin", {"bonds": False, "continuous": 0}, r"categories of edges \(2,\); paths has none"),
    ],
)
def test_features_that_do_not_fit(tmp_path: Path, model: str, other: dict[str, object], message: str) -> None:
    saved = saved_and_loaded(tmp_path, graphs(continuous=2 if model == "gin" else 0), model=model)
    with pytest.raises(GraphnormError, match=message):
        saved.predict(graphs(**other))  # type: ignore[arg-type]


def test_edges_do_not_matter_to_gin(tmp_path: Path) -> None:
    data = graphs()
    saved = saved_and_loaded(tmp_path, data)
    np.testing.assert_array_equal(saved.predict(data), saved.predict(graphs(bonds=False)))


def test_an_outcome_without_weights(tmp_path: Path) -> None:
    data = graphs()
    outcome = trained(data)
    outcome.state.clear()
    with pytest.raises(ValueError, match="keep_state=True"):
        save_model(outcome, data, tmp_path / "m.safetensors")


def with_values() -> PackedGraphs:
    data = graphs()
    targets = torch.stack([data.sizes.float(), 1000 + 7 * data.sizes.float()], dim=1)
    bare = {"labels": torch.zeros_like(data.labels), "classes": ("unknown",)}
    return replace(data, **bare, task="values", targets=targets, target_names=("size", "mass"))


def test_real_values_are_in_their_unit_and_matched_by_name(tmp_path: Path) -> None:
    data = with_values()
    saved = saved_and_loaded(tmp_path, data, task="values", lr=0.05)
    assert saved.scale is not None
    assert saved.scale.mean[0].tolist() == pytest.approx(data.targets[:8].mean(0).tolist())
    predicted = saved.predict(data)
    assert predicted.shape == (12, 2)
    assert predicted[:, 1].min() > 900
    turned = replace(data, targets=data.targets.flip(1), target_names=("mass", "size"))
    np.testing.assert_array_equal(saved.wanted(turned), data.targets.numpy())
    partly = saved.wanted(replace(data, target_names=("size", "other")))
    np.testing.assert_array_equal(partly[:, 0], data.targets[:, 0].numpy())
    assert np.isnan(partly[:, 1]).all()
    assert saved.wanted(replace(data, target_names=("a", "b"))) is None
    assert saved.wanted(replace(data, task="binary", targets=(data.targets > 5).float())) is None
    expected = np.sqrt(((predicted - data.targets.numpy()) ** 2).mean(0))
    assert saved.score("rmse", saved.scores(data), data.targets.numpy()) == pytest.approx(expected.tolist())


@pytest.mark.parametrize(
    "change",
    [
        {"task": "rank"},
        {"metric": "accuracy"},
        {"target_names": ["size"]},
        {"target_names": 3},
        {"target_names": [1, 2]},
        {"target_names": None},
        {"metrics": "good"},
        {"classes": "ab"},
        {"cardinalities": [2**31, 4]},
        {"num_continuous": 2**31},
        {"hidden": 65_536},
        {"metrics": {"valid": 10**400}},
        {"scale": torch.zeros(2)},
        {"scale": torch.full((2,), torch.inf)},
        {"scale": torch.ones(3)},
        {"scale": None},
    ],
    ids=str,
)
def test_descriptions_that_do_not_fit_are_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    path, data = tmp_path / "m.safetensors", with_values()
    save_model(trained(data, task="values"), data, path)
    with safe_open(path, "pt") as file:
        weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        description = json.loads(file.metadata()["graphnorm"])
    for name, value in change.items():
        if name == "scale":
            weights.pop("targets.std")
            weights |= {} if value is None else {"targets.std": value}
        elif name in ("task", "metric", "hidden"):
            description["trial"][name] = value
        else:
            description[name] = value
    save_file(weights, path, {"graphnorm": json.dumps(description)})
    with pytest.raises(GraphnormError, match="cannot be read"):
        load_model(path)


def test_categories_of_other_values_are_refused(tmp_path: Path) -> None:
    """They have equal numbers, since labels are numbered by what occurs."""
    networkx = pytest.importorskip("networkx")

    def labelled(*names: object) -> PackedGraphs:
        paths = [networkx.path_graph(3) for _ in range(12)]
        for path in paths:
            networkx.set_node_attributes(path, dict(enumerate(names)), "kind")
        return from_networkx(paths, [0, 1] * 6, node_label="kind")

    data = labelled("C", "N", "O")
    saved = saved_and_loaded(tmp_path, data)
    assert np.isfinite(saved.predict(labelled("O", "C", "N"))).all()
    for others in (labelled("C", "N", "S"), labelled(1, 2, 3)):
        assert torch.equal(others.tags, data.tags)  # type: ignore[arg-type]
        with pytest.raises(GraphnormError, match="the categories of nodes number other values"):
            saved.predict(others)
