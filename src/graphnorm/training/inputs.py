"""Make a model from a trial and its graphs, and the model's input from a batch."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor, nn

from graphnorm.adjacency import Adjacency, Blocks, row_stride, write_blocks
from graphnorm.data.batching import GraphBatch
from graphnorm.data.packed import PackedGraphs
from graphnorm.models.build import build
from graphnorm.models.graph import DropoutKey, OneHot
from graphnorm.models.own import OwnModel
from graphnorm.models.registry import find_model
from graphnorm.randomness import derive, seeded
from graphnorm.segments import Segments
from graphnorm.training.schedule import EVALUATION
from graphnorm.training.task import task_of
from graphnorm.training.trial import Trial

__all__ = ["Matrices", "ModelInputs", "build_model"]

TILE = 64
"""Rows and columns of the tiles in which a GPU multiplies."""
WORTHWHILE = 0.25
"""Use matrices if they read at most this share of what a sum over edges reads."""
MOST_BYTES = 1 << 32


def build_model(trial: Trial, graphs: PackedGraphs) -> nn.Module:
    """The trial's model, initialised from the trial's seed alone."""
    with seeded(trial.seed):
        model = build(trial, trial.norm, graphs, task_of(trial).outputs(graphs))
    if isinstance(model, OwnModel):
        model.seed = derive(trial.seed, EVALUATION)
    return model


class Matrices(NamedTuple):
    """The adjacency matrices of all graphs of a dataset; see :class:`~graphnorm.adjacency.Blocks`."""

    values: Tensor
    start: Tensor
    """(G + 1,)."""
    max_size: int

    @classmethod
    def of(cls, graphs: PackedGraphs) -> Matrices | None:
        """The matrices, or None if sums over edges are about as fast.

        A sum over edges reads a row of features for each of E edges. A product reads 64 rows for each of a graph's
        ⌈n/64⌉² tiles. Dense graphs of a few hundred nodes gain tenfold, sparse ones nothing.
        """
        sizes = graphs.sizes
        if graphs.device.type != "cuda" or not graphs.num_edges:
            return None
        rows_read = int(((sizes + TILE - 1) // TILE).square().sum()) * TILE
        in_bytes = int((sizes * row_stride(sizes)).sum())
        if rows_read > WORTHWHILE * graphs.num_edges or in_bytes > MOST_BYTES:
            return None
        return cls(*write_blocks(graphs.node_ptr, graphs.rowptr, graphs.col), int(sizes.max()))

    def blocks(self, batch: GraphBatch) -> Blocks:
        """The matrices of a batch. An empty place, id -1, has a matrix without rows."""
        return Blocks(self.values, self.start[batch.ids], batch.ptr, self.max_size)


class ModelInputs:
    """Makes the keyword arguments of a model's ``forward`` from a batch of graphs.

    The largest degree and graph size are read once, here. Later reads would wait for the device.

    Args:
        graphs: the dataset, as the model sees it; see :func:`graphnorm.models.build.prepare`.
        trial: if given, the input may have a form that is faster for its model: edges as matrices, one-hot features as
            categories.
    """

    def __init__(self, graphs: PackedGraphs, trial: Trial | None = None) -> None:
        self._graphs = graphs
        self._max_degree = int(graphs.degree.max())
        self._max_size = int(graphs.sizes.max())
        self._matrices, self._edge_features, self._one_hot = None, False, False
        if trial is not None:
            model = find_model(trial.model)
            single = graphs.x is None and len(graphs.cardinalities) == 1
            self._matrices = Matrices.of(graphs) if model.sums else None
            self._edge_features = model.inputs == "edges"
            self._one_hot = model.sums and single and graphs.num_features > trial.hidden

    def batch(self, ids: Any, **options: Any) -> GraphBatch:
        """A batch of the dataset, without edges if there are matrices."""
        return self._graphs.batch(ids, edges=self._matrices is None, **options)

    def __call__(self, batch: GraphBatch, *, may_pad: bool) -> dict[str, Any]:
        """The arguments. They are not checked, since the batch was assembled here.

        may_pad: whether there may be padded rows.
        """
        blocks = None if self._matrices is None else self._matrices.blocks(batch)
        edges = Adjacency.trusted(batch.rowptr, batch.col, symmetric=True, max_degree=self._max_degree, blocks=blocks)
        width = self._graphs.num_features
        inputs: dict[str, Any] = {
            "x": OneHot(batch.categories(), width) if self._one_hot else self._graphs.features(batch),
            "edges": edges,
            "batch": Segments.trusted(batch.ptr, None, batch.num_rows, self._max_size, may_pad),
        }
        if self._edge_features:
            inputs["edge_attr"] = self._graphs.edge_features(batch)
        elif batch.edge_tags is not None:
            inputs["edge_attr"] = batch.edge_tags
        return inputs

    def of_step(self, batch: GraphBatch, key: Tensor, rate: Tensor, *, padded: bool) -> dict[str, Any]:
        """The arguments in a training step, with those of dropout.

        padded: whether the batch keeps its padding, as all batches of a stack need the same shape.
        """
        batch = batch if padded else batch.without_padding()
        return self(batch, may_pad=padded) | {"dropout_key": DropoutKey(key, rate)}
