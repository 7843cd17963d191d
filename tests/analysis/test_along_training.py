"""Models during their training: the probes that measure them, and the learned α."""

from __future__ import annotations

import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest
import torch

from graphnorm.analysis import (
    AlphaProbe,
    CurvatureProbe,
    NoiseProbe,
    Probe,
    alpha_along_training,
    checkpoints,
    learned_alpha,
    log_spaced_epochs,
    run_probe,
    trial_on_all,
)
from graphnorm.analysis.plots import plot_alpha
from graphnorm.data import PackedGraphs
from graphnorm.errors import GraphnormError
from graphnorm.training.inputs import build_model

SMALL = {"hidden": 6, "layers": 3}


# ---- training and looking -------------------------------------------------------------------------------------------


def test_checkpoints_are_those_of_the_training(trees: PackedGraphs) -> None:
    trial = trial_on_all(trees, epochs=2, **SMALL)
    every = dict(checkpoints(trees, trial, seeds=2, device="cpu"))
    assert list(every) == [0, 1, 2]
    fresh = build_model(trial, trees).state_dict()
    assert all(torch.equal(value, fresh[name]) for name, value in every[0][0].state_dict().items())
    assert not torch.equal(every[0][0].head.weight, every[0][1].head.weight)
    last = dict(checkpoints(trees, trial, at=[2], seeds=2, device="cpu"))[2]
    for first, second in zip(every[2], last, strict=True):
        assert not first.training
        assert torch.equal(first.head.weight, second.head.weight)
    with pytest.raises(GraphnormError, match="name epochs 0 to 2"):
        next(checkpoints(trees, trial, at=[3], device="cpu"))


def test_log_spaced_epochs() -> None:
    assert log_spaced_epochs(100, 5) == (0, 2, 9, 31, 100)
    assert log_spaced_epochs(2, 8) == (0, 1, 2)
    with pytest.raises(GraphnormError, match="two looks"):
        log_spaced_epochs(5, 1)


PROBES: list[Probe] = [
    NoiseProbe((0, 2), 16, ("convolutions.1.second_norm",), batches=10, seed=3, ids=tuple(range(40))),
    AlphaProbe((0, 2)),
    CurvatureProbe((0, 2), tuple(range(16))),
]


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: type(probe).__name__)
def test_probes_are_values(trees: PackedGraphs, probe: Probe) -> None:
    """A probe survives pickling, leaves the model as it was, and always gives arrays of the same names and shapes."""
    assert pickle.loads(pickle.dumps(probe)) == probe
    trial = trial_on_all(trees, norm="graph", epochs=2, **SMALL)
    looks = []
    for _, (model,) in checkpoints(trees, trial, at=probe.at, device="cpu"):
        before = {name: value.clone() for name, value in model.state_dict().items()}
        looks.append(probe.look(model, trees))
        assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
        assert not any(module.training for module in model.modules())
    assert [{name: array.shape for name, array in look.items()} for look in looks[1:]] == [
        {name: array.shape for name, array in looks[0].items()}
    ]
    (seen,) = run_probe(probe, trees, trial, device="cpu")
    for name, arrays in seen.items():
        np.testing.assert_array_equal(arrays, [look[name] for look in looks])


def test_a_probe_in_another_process(trees: PackedGraphs) -> None:
    model = build_model(trial_on_all(trees, **SMALL), trees).eval()
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        found = pool.submit(AlphaProbe((0,)).look, model, trees).result()
    assert (found["convolutions.0.first_norm"] == 1).all()


# ---- the learned α --------------------------------------------------------------------------------------------------


def test_alpha(trees: PackedGraphs) -> None:
    found = alpha_along_training(trees, epochs=3, at=[3, 0], seeds=2, batch_size=8, device="cpu", **SMALL)
    assert found.layers[0] == "convolutions.0.first_norm"
    assert found.epochs.tolist() == [0, 3]
    assert len(found.layers) == 4
    assert all(values.shape == (2, 2, 6) for values in found.values)
    assert all((values[0] == 1).all() for values in found.values)
    assert all((values[1] != 1).any() for values in found.values)
    assert not np.allclose(found.values[0][1, 0], found.values[0][1, 1])  # seeds differ
    summary = found.summary()["convolutions.0.first_norm"]
    last = found.values[0][1]
    assert summary["quantiles"]["0.5"] == np.median(last)
    assert summary["share_near_1"] == (np.abs(last - 1) < 0.1).mean()
    figure = plot_alpha(found, title="trees")
    drawn = sum(patch.get_height() for patch in figure.axes[0].patches)
    assert drawn == pytest.approx(1)
    np.testing.assert_allclose(figure.axes[-1].lines[0].get_ydata(), np.median(found.values[0], axis=(1, 2)))
    with pytest.raises(GraphnormError, match="no layer with a learned α"):
        learned_alpha(torch.nn.Linear(2, 2))
