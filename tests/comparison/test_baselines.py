"""Baselines beside the normalizations: in the table and the files, out of the ranking and the tests."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fake_training import FakeTraining
from graphnorm.comparison import Comparison, compare
from graphnorm.data import PackedGraphs, synthetic
from graphnorm.errors import GraphnormError
from graphnorm.study.kernels import candidates

GRAPHS = synthetic.trees(num_graphs=60, seed=0)


def run(data: PackedGraphs = GRAPHS, **options: object) -> Comparison:
    small = {"norms": "graph,none", "folds": 3, "epochs": 2, "hidden": 8, "layers": 3, "device": "cpu", "workers": 1}
    return compare(data, progress=False, **small | options)  # type: ignore[arg-type]


@pytest.fixture
def _fake(fake: Callable[..., FakeTraining]) -> None:
    fake()


@pytest.mark.usefixtures("_fake")
def test_a_kernel_has_a_row_of_its_own(tmp_path: Path) -> None:
    result = run(baselines="wl", out=tmp_path)
    kernel = result.baselines["wl"]
    assert len(kernel.scores) == 3
    assert [len(o.curves["valid"]) for o in kernel.outcomes] == [len(candidates("wl"))] * 3
    (line,) = (line for line in str(result).splitlines() if line.startswith("baseline wl"))
    assert f"{kernel.mean:.1f} ± {kernel.std:.1f}" in line
    chosen = candidates("wl")[kernel.selection.epoch - 1]
    assert f"depth {chosen['depth']}, C {chosen['C']:g}" in line
    assert "neither ranked nor tested" in str(result)
    assert "wl" not in result.verdict
    assert "wl" not in result.ranking
    assert {test.first for test in result.significance} | {test.second for test in result.significance} == {
        "graph",
        "none",
    }
    frame = result.to_frame()
    assert frame.loc["baseline wl", "mean"] == pytest.approx(kernel.mean)
    assert frame.loc["baseline wl"].isna()[["p_adjusted", "epoch", "area"]].all()
    assert "<td>baseline wl</td>" in result._repr_html_()
    written = json.loads((tmp_path / "comparison.json").read_text())
    assert written["baselines"]["wl"]["mean"] == pytest.approx(kernel.mean, abs=1e-4)
    assert written["baselines"]["wl"]["candidates"][kernel.selection.epoch - 1].keys() == {"depth", "C"}
    assert written["config"]["baselines"] == ["wl"]
    assert list(written["norms"]) == ["graph", "none"]
    again = run(baselines="wl", out=tmp_path, resume=True)
    assert again.resumed == ("graph", "none", "baseline wl")
    assert again.baselines["wl"].scores == kernel.scores


def test_a_network_is_trained_on_the_same_folds_with_its_own_shape() -> None:
    result = run(baselines=["mlp", "dgcnn"], norms="none", protocol="fair")
    for name, layers in (("mlp", 3), ("dgcnn", 5)):
        outcomes = result.baselines[name].outcomes
        assert [o.trial.fold for o in outcomes] == [0, 1, 2]
        assert {(o.trial.layers, o.trial.epochs, o.trial.protocol) for o in outcomes} == {(layers, 2, "fair")}
        assert all("test" in o.curves for o in outcomes)


@pytest.mark.usefixtures("_fake")
def test_what_is_no_baseline() -> None:
    with pytest.raises(GraphnormError, match="unknown baseline 'dgcn'; did you mean 'dgcnn'"):
        run(baselines="dgcn")
    with pytest.raises(GraphnormError, match="wl: kernels are for cross-validation"):
        run(baselines="wl", protocol="ogb")
