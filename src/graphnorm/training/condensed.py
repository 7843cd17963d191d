"""Graphs condensed to what a model makes of them before its first parameter: once, and not again at every step.

The perceptron sees the sum or mean of a graph's features, DCNN their means after each hop. Neither changes in training,
so a graph becomes one node without edges that has these as its features.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from graphnorm.adjacency import Adjacency
from graphnorm.data.packed import PackedGraphs
from graphnorm.models.baselines.dcnn import diffuse
from graphnorm.ops.neighbour_sum import pool
from graphnorm.segments import Segments
from graphnorm.training.trial import Trial

__all__ = ["CONDENSED", "condense"]

CONDENSED = ("mlp", "dcnn")
"""The models that see condensed graphs."""
_ROWS = 1 << 15
"""Nodes that are condensed at a time."""


def condense(trial: Trial, graphs: PackedGraphs) -> PackedGraphs:
    """One node for each graph, with the features that the trial's model has of it; labels and splits as they are."""
    chunk = graphs.sizes.cumsum(0) // _ROWS
    counts = torch.unique_consecutive(chunk, return_counts=True)[1].tolist()
    parts = []
    for ids in torch.split_with_sizes(torch.arange(graphs.num_graphs), counts):
        batch = graphs.batch(ids)
        x, segments = graphs.features(batch), Segments(ptr=batch.ptr)
        if trial.model == "mlp":
            parts.append(pool(x, segments, trial.readout))
        else:
            adjacency = Adjacency.trusted(batch.rowptr, batch.col, symmetric=True)
            parts.append(diffuse(x, adjacency, segments, trial.layers - 1).flatten(1))
    nodes = torch.arange(graphs.num_graphs + 1, device=graphs.device)
    bare = replace(graphs, tags=None, cardinalities=(), edge_tags=None, edge_cardinalities=(), edge_x=None)
    return replace(bare, node_ptr=nodes, rowptr=torch.zeros_like(nodes), col=graphs.col[:0], x=torch.cat(parts))
