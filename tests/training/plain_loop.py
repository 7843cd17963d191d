"""A training loop as anyone would write it: one model, one batch at a time, torch's own optimizer."""

from __future__ import annotations

import numpy as np
import torch

from graphnorm.data import PackedGraphs
from graphnorm.models import DropoutKey
from graphnorm.randomness import derive
from graphnorm.training import Split, Trial, build_model, task_of

ORDER, DROPOUT = 1, 2


def plain_losses(graphs: PackedGraphs, trial: Trial, split: Split, epochs: int) -> tuple[list[float], list[float]]:
    """The mean training loss and a score on the validation graphs of each epoch: accuracy, or RMSE of real values."""
    model = build_model(trial, graphs)
    optimizer = torch.optim.Adam(model.parameters(), lr=trial.lr, weight_decay=trial.weight_decay)
    task = task_of(trial).name
    training = None if graphs.targets is None else graphs.targets[split.train].numpy()
    mean, std = (0.0, 1.0) if training is None else (np.nanmean(training, axis=0), np.nanstd(training, axis=0))
    losses, scores = [], []
    steps = -(-len(split.train) // trial.batch_size)
    for epoch in range(epochs):
        for group in optimizer.param_groups:
            group["lr"] = trial.lr * (1 - epoch / trial.epochs)
        order = sorted(split.train.tolist(), key=lambda graph: derive(trial.seed, ORDER, epoch, graph))
        total = 0.0
        model.train()
        for step in range(steps):
            batch = graphs.batch(order[step * trial.batch_size : (step + 1) * trial.batch_size])
            key = derive(trial.seed, DROPOUT, epoch, step)
            out = call(model, graphs, batch, dropout_key=DropoutKey(torch.tensor(key), torch.tensor(trial.dropout)))
            if task == "binary" and batch.targets is not None:
                there = ~batch.targets.isnan()
                loss = torch.nn.functional.binary_cross_entropy_with_logits(out[there], batch.targets[there])
            elif task == "binary":
                loss = torch.nn.functional.binary_cross_entropy_with_logits(out[:, 0], batch.labels.float())
            elif task == "values":
                there = ~batch.targets.isnan()
                standardized = (batch.targets - torch.tensor(mean)) / torch.tensor(std)
                loss = torch.nn.functional.mse_loss(out[there], standardized[there])
            else:
                loss = torch.nn.functional.cross_entropy(out, batch.labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += float(loss.detach())
        losses.append(total / steps)
        model.eval()
        batch = graphs.batch(split.valid)
        with torch.no_grad():
            out = call(model, graphs, batch)
        if task == "values":
            error = (out.numpy() * std + mean - batch.targets.numpy()) ** 2
            scores.append(float(np.sqrt(np.nanmean(error, axis=0)).mean()))
            continue
        labels = batch.labels[:, None] if batch.targets is None else batch.targets
        right = (out > 0) == labels if task == "binary" else (out.argmax(1) == batch.labels)[:, None]
        known = np.where(labels.isnan(), np.nan, right) if task == "binary" else right.numpy()
        scores.append(float(np.nanmean(known, axis=0).mean()))
    return losses, scores


def call(model, graphs, batch, **options):
    """The model by its PyTorch Geometric signature."""
    if batch.edge_tags is not None and hasattr(model, "bond_cardinalities"):
        options["edge_attr"] = batch.edge_tags
    return model(graphs.features(batch), batch.edge_index, batch.batch, batch.num_graphs, **options)
