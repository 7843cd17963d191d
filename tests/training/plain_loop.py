"""A training loop as anyone would write it: one model, one batch at a time, torch's own optimizer."""

from __future__ import annotations

import torch

from graphnorm.data import PackedGraphs
from graphnorm.models import DropoutKey
from graphnorm.randomness import derive
from graphnorm.training import Split, Trial, build_model, find_task

ORDER, DROPOUT = 1, 2


def plain_losses(graphs: PackedGraphs, trial: Trial, split: Split, epochs: int) -> tuple[list[float], list[float]]:
    """The mean training loss and the accuracy on the validation graphs of each epoch."""
    model = build_model(trial, graphs)
    optimizer = torch.optim.Adam(model.parameters(), lr=trial.lr, weight_decay=trial.weight_decay)
    binary = find_task(trial.protocol).metric == "ROC-AUC"
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
            if binary:
                loss = torch.nn.functional.binary_cross_entropy_with_logits(out[:, 0], batch.labels.float())
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
        right = (out[:, 0] > 0).long() == batch.labels if binary else out.argmax(1) == batch.labels
        scores.append(float(right.float().mean()))
    return losses, scores


def call(model, graphs, batch, **options):
    """The model by its PyTorch Geometric signature."""
    if batch.edge_tags is not None and hasattr(model, "bond_cardinalities"):
        options["edge_attr"] = batch.edge_tags
    return model(graphs.features(batch), batch.edge_index, batch.batch, batch.num_graphs, **options)
