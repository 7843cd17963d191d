"""Orders, keys and static sizes."""

from __future__ import annotations

import numpy as np
import torch

from graphnorm.data import synthetic
from graphnorm.data.batching import Bounds
from graphnorm.randomness import derive
from graphnorm.training.schedule import MOST_LEVELS, ROWS_A_LEVEL_COSTS, Schedule, choose_levels
from graphnorm.training.trial import Split, Trial

GRAPHS = synthetic.trees(num_graphs=50, seed=0)


def schedule(*counts: int, batch_size: int = 8, epochs: int = 5, last_batch: str = "keep") -> Schedule:
    options = {"batch_size": batch_size, "epochs": epochs, "last_batch": last_batch}
    trials = [Trial(dataset="trees", seed=k, **options) for k in range(len(counts))]
    splits = [Split(np.arange(count), np.arange(count, 50)) for count in counts]
    return Schedule(trials, splits, 50, torch.device("cpu"))


def test_every_epoch_has_each_training_graph_once_in_the_order_of_its_hash():
    batches = schedule(20, 33).batches(0, 5)
    assert batches.shape == (5, 5, 2, 8)
    for epoch in range(5):
        for member, count in enumerate((20, 33)):
            ids = batches[epoch, :, member].flatten()
            expected = sorted(range(count), key=lambda graph: derive(member, 1, epoch, graph))
            assert ids[ids >= 0].tolist() == expected
            assert (ids[count:] == -1).all()


def test_the_last_batch_is_kept_dropped_or_evened_out():
    for last_batch, sizes in (
        ("keep", [[8, 8, 1], [8, 8, 0], [5, 0, 0]]),
        ("drop", [[8, 8], [8, 8], [5, 0]]),
        ("even", [[6, 6, 5], [8, 8, 0], [5, 0, 0]]),
    ):
        batches = schedule(17, 16, 5, last_batch=last_batch).batches(0, 2)
        assert (batches[0] >= 0).sum(-1).T.tolist() == sizes
        for member, count in enumerate((17, 16, 5)):
            ids = batches[1, :, member].flatten()
            order = sorted(range(count), key=lambda graph: derive(member, 1, 1, graph))
            assert ids[ids >= 0].tolist() == order[: sum(sizes[member])]


def test_keys_do_not_depend_on_the_other_members():
    alone, beside = schedule(20).dropout_keys(1, 3), schedule(20, 40).dropout_keys(1, 3)
    assert torch.equal(beside[:, :3, 0], alone[:, :, 0])
    assert int(alone[0, 2, 0]) == derive(0, 2, 1, 2)
    assert len(beside.unique()) == beside.numel()


def test_the_rate_falls_linearly():
    rates = [float(schedule(20).learning_rates(epoch)[0]) for epoch in range(5)]
    np.testing.assert_allclose(rates, 1e-2 * np.array([1, 0.8, 0.6, 0.4, 0.2]), rtol=1e-6)


def test_needs_are_those_of_the_largest_member():
    plan = schedule(20, 33)
    needs, batches = plan.needs(GRAPHS), plan.batches(0, 5)
    for epoch, step in np.ndindex(needs.shape[:2]):
        assert Bounds(*needs[epoch, step]) == GRAPHS.bounds(batches[epoch, step])


def test_levels_waste_the_fewest_rows():
    rows = np.array([10, 11, 50, 52, 100, 101] * 20).reshape(20, 6)
    needs = np.stack([rows, 2 * rows], axis=-1)
    bounds, level = choose_levels(needs, ROWS_A_LEVEL_COSTS // 200)  # members, of whom each saves 3920 and 1640 rows
    assert bounds == [Bounds(11, 22), Bounds(52, 104), Bounds(101, 202)]
    assert level[0].tolist() == [0, 0, 1, 1, 2, 2]
    assert len(choose_levels(needs, ROWS_A_LEVEL_COSTS // 2000)[0]) == 2
    assert len(choose_levels(needs, 1)[0]) == 1


def test_every_step_fits_its_level():
    rng = np.random.default_rng(0)
    rows = (rng.pareto(1.5, size=(40, 30)) * 100).astype(np.int64) + 1
    needs = np.stack([rows, rows * rng.integers(1, 9, rows.shape)], axis=-1)
    bounds, level = choose_levels(needs, 100_000)
    assert 1 < len(bounds) <= MOST_LEVELS
    assert (np.array(bounds)[level] >= needs).all()
    assert (np.diff([bound.max_nodes for bound in bounds]) > 0).all()


def test_equal_steps_have_one_level():
    bounds, level = choose_levels(np.full((3, 4, 2), 7), 10**9)
    assert bounds == [Bounds(7, 7)]
    assert not level.any()
