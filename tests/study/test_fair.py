"""The protocol fair, with real training: a reported graph has no part in any choice."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from graphnorm.data import synthetic
from graphnorm.study import make_splits, select
from graphnorm.training import Trial, train


def test_scrambling_the_reported_labels_changes_no_choice() -> None:
    graphs = synthetic.regular(num_graphs=60, seed=0)
    trials = [
        Trial(dataset="regular", protocol="fair", folds=2, fold=fold, epochs=6, hidden=8, layers=3, batch_size=8, lr=lr)
        for lr in (0.003, 0.03)
        for fold in range(2)
    ]
    splits = make_splits(graphs, trials)
    honest = train(graphs, trials, splits, device="cpu", workers=1)
    reported = torch.from_numpy(splits[0].test)
    labels = graphs.labels.clone()
    labels[reported] = 1 - labels[reported]
    scrambled = replace(graphs, labels=labels)
    first_fold = [k for k, trial in enumerate(trials) if trial.fold == 0]
    again = train(scrambled, [trials[k] for k in first_fold], [splits[k] for k in first_fold], device="cpu", workers=1)
    for before, after in zip([honest[k] for k in first_fold], again, strict=True):
        for name in ("loss", "train", "valid"):
            np.testing.assert_array_equal(before.curves[name], after.curves[name])
        np.testing.assert_allclose(before.curves["test"], 1 - after.curves["test"], atol=1e-6)
    choices = [
        [choice[:4] for choice in select([[run[0]], [run[1]]]).choices]
        for run in ([honest[k] for k in first_fold], again)
    ]
    assert choices[0] == choices[1]
