"""All members scored on all graphs, in evaluation mode."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from graphnorm.data.batching import GraphBatch
from graphnorm.data.packed import PackedGraphs
from graphnorm.training.metrics import Metric, select
from graphnorm.training.schedule import padded_ids
from graphnorm.training.setup import Extremes, Shortcuts, model_inputs
from graphnorm.training.stack import Stack
from graphnorm.training.trial import Split

__all__ = ["Evaluation"]

_ROWS = {"cuda": 1 << 21, "cpu": 1 << 15}
"""Rows of one pass, of all members together: enough to keep the device busy, few enough to stay in its caches."""


class Evaluation:
    """The members' metrics on the training, validation and test graphs of each.

    The folds of a cross-validation share out the same graphs, so the graphs are scored once for all members, in
    batches that are assembled once for the whole training; each member's metrics then pick their own graphs. In
    evaluation mode no layer lets one graph see another, so how they are batched does not matter.
    """

    def __init__(
        self,
        graphs: PackedGraphs,
        splits: Sequence[Split],
        extremes: Extremes,
        shortcuts: Shortcuts,
        metric: Metric,
        device: torch.device,
    ) -> None:
        self._graphs, self._metric, self._extremes, self._shortcuts = graphs, metric, extremes, shortcuts
        sets = {name: padded_ids([getattr(split, name) for split in splits]) for name in Split._fields}
        sets = {name: ids for name, ids in sets.items() if ids.numel()}
        scored = torch.unique(torch.cat([ids.flatten() for ids in sets.values()]))
        scored = scored[scored >= 0]
        place = torch.full((graphs.num_graphs + 1,), -1)  # of each graph among those scored; the id -1 finds a -1
        place[scored] = torch.arange(len(scored))
        self._sets = {name: place[ids].to(device) for name, ids in sets.items()}
        rows = max(1, _ROWS[device.type] // len(splits))
        chunk = graphs.sizes.cpu()[scored].cumsum(0) // rows
        counts = torch.unique_consecutive(chunk, return_counts=True)[1].tolist()
        self._batches: list[GraphBatch] = [
            graphs.batch(ids, edges=shortcuts.matrices is None) for ids in scored.split(counts)
        ]
        self._labels = torch.cat([batch.labels for batch in self._batches]).expand(len(splits), -1)

    @property
    def names(self) -> tuple[str, ...]:
        """The sets that are not empty, in the order of :class:`Split`."""
        return tuple(self._sets)

    def _inputs(self, batch: GraphBatch) -> dict[str, object]:
        return model_inputs(self._graphs, batch, self._extremes, self._shortcuts, may_pad=False)

    @torch.no_grad()
    def __call__(self, stack: Stack) -> Tensor:
        """(M, sets): every member's metric on every set of its own."""
        scores = torch.cat(
            [stack.forward(self._inputs, batch, training=False, stacked=False) for batch in self._batches], dim=1
        )
        columns = []
        for ids in self._sets.values():
            labels = torch.where(ids >= 0, select(self._labels, ids), -1)
            columns.append(self._metric(select(scores, ids), labels).to(torch.float32))
        return torch.stack(columns, dim=1)
