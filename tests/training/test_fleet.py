"""A member of a fleet trains exactly as it would alone."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from tests.training.plain_loop import plain_losses

from graphnorm.data import PackedGraphs, synthetic
from graphnorm.errors import GraphnormError
from graphnorm.layers import REGISTRY
from graphnorm.training import TASKS, Fleet, ModelInputs, Split, Trial, build_model, metric_of

TREES = synthetic.trees(num_graphs=60, seed=1)
KINDS = torch.randint(0, 5, (TREES.num_nodes, 1), generator=torch.manual_seed(0)).to(torch.uint8)
GRAPHS = dataclasses.replace(TREES, tags=KINDS, x=None, cardinalities=(5,))  # rows that differ: no ReLU sits at 0
NORMS = [name for name in REGISTRY if name != "size"]


def split(fold: int, graphs: int = 60, folds: int = 5) -> Split:
    ids = np.arange(graphs)
    return Split(ids[ids % folds != fold], ids[ids % folds == fold])


def trials(count: int = 3, **options) -> list[Trial]:
    """Members that differ in everything that members may differ in."""
    base = Trial(dataset="trees", **{"batch_size": 16, "epochs": 4, "hidden": 16, "layers": 4} | options)
    return [
        dataclasses.replace(base, fold=k, seed=k, lr=2e-3 / (k + 1), weight_decay=1e-3 * k, dropout=0.25 * k)
        for k in range(count)
    ]


@pytest.mark.parametrize("model", ["gin", "gcn"])
@pytest.mark.parametrize("norm", NORMS)
def test_members_train_as_a_plain_loop_would(norm, model):
    members = trials(model=model, norm=norm)
    splits = [split(k) for k in range(3)]
    fleet = Fleet(GRAPHS, members, splits, device="cpu")
    fleet.advance(3)
    for outcome, member, part in zip(fleet.outcomes(), members, splits, strict=True):
        losses, scores = plain_losses(GRAPHS, member, part, 3)
        np.testing.assert_allclose(outcome.curves["loss"], losses, rtol=2e-3)
        assert outcome.curves["valid"][0] == pytest.approx(scores[0], abs=0.09)


def with_targets(task: str, columns: int = 3) -> PackedGraphs:
    """Graphs with targets that depend on them, a third of which is missing."""
    random = torch.Generator().manual_seed(1)
    sizes = GRAPHS.sizes.float()[:, None] + 5 * torch.randn(60, columns, generator=random)
    values = 100 + 20 * sizes if task == "values" else (sizes > sizes.median(0).values).float()
    missing = torch.rand(60, columns, generator=random) < 0.33
    bare = {"labels": torch.zeros_like(GRAPHS.labels), "classes": ("unknown",)}
    names = tuple(f"t{k}" for k in range(columns))
    targets = torch.where(missing, torch.nan, values)
    return dataclasses.replace(GRAPHS, **bare, task=task, targets=targets, target_names=names)


@pytest.mark.parametrize("norm", ["graph", "batch"])
@pytest.mark.parametrize("task", ["binary", "values"])
def test_targets_with_missing_values_train_as_in_a_plain_loop(task: str, norm: str) -> None:
    graphs = with_targets(task)
    members = trials(norm=norm, task=task, metric="accuracy" if task == "binary" else "rmse")
    splits = [split(k) for k in range(3)]
    fleet = Fleet(graphs, members, splits, device="cpu")
    fleet.advance(3)
    for outcome, member, part in zip(fleet.outcomes(keep_state=True), members, splits, strict=True):
        losses, scores = plain_losses(graphs, member, part, 3)
        np.testing.assert_allclose(outcome.curves["loss"], losses, rtol=2e-3)
        assert outcome.curves["valid"][0] == pytest.approx(scores[0], rel=0.01 if task == "values" else 0, abs=0.09)
        assert ("targets.mean" in outcome.state) == (task == "values")


@pytest.mark.parametrize("task", ["binary", "values"])
def test_the_metric_of_each_target_on_the_reported_part(task: str) -> None:
    graphs = with_targets(task)
    members = trials(2, task=task)
    parts = [Split(np.arange(40), np.arange(40, 50), np.arange(50, 60)), Split(np.arange(20, 60), np.arange(20))]
    for member, part in zip(members, parts, strict=True):
        fleet = Fleet(graphs, [member], [part], device="cpu")
        fleet.advance(2)
        (outcome,) = fleet.outcomes()
        curve = outcome.curves["test" if len(part.test) else "valid"]
        assert outcome.targets.shape == (2, 3)
        np.testing.assert_allclose(outcome.targets.mean(1), curve, rtol=1e-5)
        reported = part.test if len(part.test) else part.valid
        scores = fleet._evaluation._scale.restore if fleet._evaluation._scale else lambda found: found
        with torch.no_grad():
            batch = graphs.batch(reported)
            found = scores(fleet.model(0)(**ModelInputs(graphs, member)(batch, may_pad=False))[None])
        expected = TASKS[task].each(metric_of(member).key, found, batch.targets[None])[0]
        np.testing.assert_allclose(outcome.targets[-1], expected, rtol=1e-4)
        assert len(set(outcome.targets[-1].tolist())) > 1
    assert Fleet(GRAPHS, trials(1), [split(0)], device="cpu").outcomes()[0].targets.size == 0


def test_a_batch_without_any_target_is_no_step() -> None:
    graphs = with_targets("values", 1)
    assert graphs.targets is not None
    targets = graphs.targets.nan_to_num(100.0)
    targets[32:48] = torch.nan
    graphs = dataclasses.replace(graphs, targets=targets)
    (member,) = trials(1, norm="graph", task="values", batch_size=1)
    fleet = Fleet(graphs, [member], [Split(np.arange(48), np.arange(50, 60))], device="cpu")
    fleet.advance(1)
    assert fleet.stack.moments.steps.tolist() == [32]
    assert np.isfinite(fleet.outcomes()[0].curves["loss"]).all()


@pytest.mark.parametrize(
    "options", [{"self_loops": True, "readout": "mean"}, {"hidden": 4}, {"model": "gcn", "hidden": 4}], ids=str
)
def test_other_settings_train_as_a_plain_loop_would(options):
    """With more categories than hidden units the one-hot matrix is never made."""
    (member,) = trials(1, **options)
    assert ModelInputs(GRAPHS, member)._one_hot == (member.hidden == 4)
    fleet = Fleet(GRAPHS, [member], [split(0)], device="cpu")
    fleet.advance(2)
    losses, _ = plain_losses(GRAPHS, member, split(0), 2)
    np.testing.assert_allclose(fleet.outcomes()[0].curves["loss"], losses, rtol=2e-3 if member.hidden == 4 else 1e-4)


def test_members_with_fewer_graphs_skip_the_steps_they_do_not_have():
    """With 33 and 32 training graphs and batches of 16 there is a third step, for the first member alone."""
    parts = [Split(np.arange(33), np.arange(40, 50)), Split(np.arange(32), np.arange(40, 50))]
    members = trials(2, norm="batch")
    fleet = Fleet(GRAPHS, members, parts, device="cpu")
    fleet.advance(2)
    assert fleet.stack.moments.steps.tolist() == [6, 4]
    for outcome, member, part in zip(fleet.outcomes(), members, parts, strict=True):
        np.testing.assert_allclose(outcome.curves["loss"], plain_losses(GRAPHS, member, part, 2)[0], rtol=1e-3)


def test_a_member_that_diverges_disturbs_no_other():
    members = trials(3)
    wild = dataclasses.replace(members[1], lr=float("inf"))
    parts = [split(k) for k in range(3)]
    calm, disturbed = Fleet(GRAPHS, members, parts, device="cpu"), Fleet(
        GRAPHS, [members[0], wild, members[2]], parts, device="cpu"
    )  # fmt: skip
    calm.advance()
    disturbed.advance()
    expected, got = calm.outcomes(), disturbed.outcomes()
    assert [outcome.status for outcome in got] == ["done", "diverged", "done"]
    assert np.isnan(got[1].curves["loss"][-1])
    assert np.isnan(got[1].curves["valid"][-1])
    for k in (0, 2):
        for name, curve in expected[k].curves.items():
            np.testing.assert_array_equal(got[k].curves[name], curve)


@pytest.mark.parametrize(("model", "norm"), [("gin", "graph"), ("gcn", "batch")])
def test_a_member_alone_and_in_a_fleet(model, norm, set_threads):
    """To the bit, although the fleet's batches are padded, and with any number of threads."""
    members, parts = trials(model=model, norm=norm, hidden=64, epochs=2), [split(k) for k in range(3)]
    set_threads(2)
    together = Fleet(GRAPHS, members, parts, device="cpu")
    together.advance()
    set_threads(1)
    for k, expected in enumerate(together.outcomes(keep_state=True)):
        alone = Fleet(GRAPHS, [members[k]], [parts[k]], device="cpu")
        alone.advance()
        (found,) = alone.outcomes(keep_state=True)
        for name, curve in expected.curves.items():
            np.testing.assert_array_equal(found.curves[name], curve)
        for name, value in expected.state.items():
            torch.testing.assert_close(found.state[name], value, rtol=0, atol=0)


@pytest.mark.parametrize("norm", ["graph", "batch"])
def test_a_checkpoint_goes_on_exactly(norm, tmp_path):
    members, parts = trials(2, norm=norm), [split(0), split(1)]
    whole, begun, resumed = (Fleet(GRAPHS, members, parts, device="cpu") for _ in range(3))
    whole.advance()
    begun.advance(2)
    torch.save(begun.state_dict(), tmp_path / "state.pt")
    resumed.load_state_dict(torch.load(tmp_path / "state.pt"))
    resumed.advance()
    for expected, got in zip(whole.outcomes(), resumed.outcomes(), strict=True):
        for name, curve in expected.curves.items():
            np.testing.assert_array_equal(got.curves[name], curve)


@pytest.mark.parametrize("model", ["gin", "mlp", "dcnn"])
def test_some_members_go_on_without_the_others(model):
    members, parts = trials(3, model=model), [split(k) for k in range(3)]
    whole, begun = Fleet(GRAPHS, members, parts, device="cpu"), Fleet(GRAPHS, members, parts, device="cpu")
    whole.advance()
    begun.advance(2)
    smaller = begun.keep([2, 0])
    smaller.advance()
    everyone = whole.outcomes()
    for got, expected in zip(smaller.outcomes(), (everyone[2], everyone[0]), strict=True):
        assert got.trial == expected.trial
        np.testing.assert_allclose(got.curves["loss"], expected.curves["loss"], rtol=1e-3)


def test_the_state_of_a_member_loads_into_a_model_of_its_own():
    fleet = Fleet(GRAPHS, trials(2, norm="batch"), [split(0), split(1)], device="cpu")
    fleet.advance()
    outcome = fleet.outcomes(keep_state=True)[1]
    model = build_model(fleet.trials[1], GRAPHS)
    model.load_state_dict(outcome.state)
    batch = GRAPHS.batch(split(1).valid)
    for one in (model.eval(), fleet.model(1)):
        scores = one(GRAPHS.features(batch), batch.edge_index, batch.batch)
        share = float((scores.argmax(1) == batch.labels).float().mean())
        assert share == pytest.approx(float(outcome.curves["valid"][-1]))


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="one shape"):
        Fleet(GRAPHS, [trials(1)[0], dataclasses.replace(trials(1)[0], norm="none")], [split(0)] * 2, device="cpu")
    with pytest.raises(ValueError, match="as many splits"):
        Fleet(GRAPHS, trials(2), [split(0)], device="cpu")
    with pytest.raises(GraphnormError, match=r"fold 0 of .* is empty"):
        Fleet(GRAPHS, trials(1), [Split(np.arange(9), np.arange(0))], device="cpu")
    for device in ("gpu", "meta", "cuda:99"):
        with pytest.raises(GraphnormError, match="device" if device != "meta" else "cpu or cuda") as caught:
            Fleet(GRAPHS, trials(1), [split(0)], device=device)
        assert caught.value.remedy


def test_on_regular_graphs_graphnorm_learns_and_instancenorm_cannot():
    """Every graph's rows are equal, so the full shift leaves nothing of them (Proposition 1); a learned one can."""
    graphs = synthetic.regular(num_graphs=60, seed=0)
    member = Trial(dataset="regular", hidden=16, layers=4, batch_size=16, epochs=30)
    reached = {}
    for norm in ("graph", "instance"):
        fleet = Fleet(graphs, [dataclasses.replace(member, norm=norm)], [split(0)], device="cpu")
        fleet.advance()
        reached[norm] = fleet.outcomes()[0].curves["train"].max()
    assert reached["graph"] > 0.95
    largest_class = np.bincount(graphs.labels[split(0).train]).max() / len(split(0).train)
    assert reached["instance"] <= largest_class + 1e-6


def test_real_values_go_on_from_a_checkpoint_and_in_a_smaller_fleet() -> None:
    graphs = with_targets("values")
    members, parts = trials(norm="graph", task="values"), [split(k) for k in range(3)]
    whole, begun, later = (Fleet(graphs, members, parts, device="cpu") for _ in range(3))
    whole.advance()
    begun.advance(2)
    later.load_state_dict(begun.state_dict())
    later.advance()
    kept = begun.keep([2])
    kept.advance()
    for name, curve in whole.outcomes()[2].curves.items():
        for other in (later.outcomes()[2], kept.outcomes()[0]):
            np.testing.assert_array_equal(other.curves[name], curve)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (Split(np.arange(50), np.arange(50, 61)), "'valid' of the split of fold 0 of .* has the graph 60"),
        (Split(np.arange(50), np.arange(50, 55), np.arange(54, 60)), "1 graphs, such as 54"),
        (Split(np.arange(50), np.arange(50, 55), np.arange(50)), "'train' and 'test' are the same graphs"),
        (Split(np.arange(0), np.arange(50, 55)), "'train' .* is empty"),
    ],
)
def test_wrong_splits_are_refused(wrong: Split, message: str) -> None:
    with pytest.raises(GraphnormError, match=message):
        Fleet(GRAPHS, trials(1), [wrong], device="cpu")
