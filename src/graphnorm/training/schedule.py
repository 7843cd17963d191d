"""Which graphs each member of a fleet sees at each step, with which dropout key and learning rate."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphnorm.data.batching import Bounds
from graphnorm.data.packed import PackedGraphs
from graphnorm.randomness import bits
from graphnorm.training.trial import Split, Trial

__all__ = ["EVALUATION", "Schedule", "choose_levels", "padded_ids"]

_ORDER, _DROPOUT, EVALUATION = 1, 2, 3  # purposes of a seed
_LAST = torch.iinfo(torch.int64).max


def padded_ids(sets: Sequence[npt.NDArray[np.int64]]) -> Tensor:
    """(M, longest): each set of graph ids as a row, filled up with -1."""
    ids = torch.full((len(sets), max(map(len, sets), default=0)), -1)
    for row, members in zip(ids, sets, strict=True):
        row[: len(members)] = torch.as_tensor(members)
    return ids


def _places(counts: Sequence[int], batch_size: int, last_batch: str) -> Tensor:
    """(M, steps, B): which of a member's graphs, in the order of an epoch, are in each batch; -1 for an empty place.

    >>> [(_places([7], 3, last_batch) >= 0).sum(-1).tolist() for last_batch in ("keep", "drop", "even")]
    [[[3, 3, 1]], [[3, 3]], [[3, 2, 2]]]
    """
    graphs = torch.tensor(counts)[:, None]
    if last_batch == "drop":
        graphs = torch.where(graphs < batch_size, graphs, graphs - graphs % batch_size)
    own_steps = -(-graphs // batch_size)
    step = torch.arange(int(own_steps.max()) + 1)
    ends = (-(-graphs * step // own_steps) if last_batch == "even" else step * batch_size).clamp(max=graphs)
    place = ends[:, :-1, None] + torch.arange(batch_size)
    return torch.where(place < ends[:, 1:, None], place, -1)


MOST_LEVELS = 8
ROWS_A_LEVEL_COSTS = 10_000_000
"""A GPU trains about this many rows in the time it takes to record one more step."""


class Schedule:
    """The schedule of a fleet, computed on its device from the members' seeds, training sets and learning rates.

    In each epoch a member's graphs are sorted by the hash of (seed, epoch, graph). So the order depends neither on the
    device nor on the other members. ``last_batch`` says how the graphs left over are batched. Members with fewer graphs
    have a shorter last step, or none: empty places are -1.
    """

    def __init__(self, trials: Sequence[Trial], splits: Sequence[Split], num_graphs: int, device: torch.device) -> None:
        first = trials[0]
        self.epochs, self.batch_size, self.members = first.epochs, first.batch_size, len(trials)
        self._places = _places([len(split.train) for split in splits], self.batch_size, first.last_batch).to(device)
        self.steps = self._places.shape[1]
        self._num_graphs, self._device = num_graphs, device
        training = torch.zeros(self.members, num_graphs, dtype=torch.bool)
        for row, split in zip(training, splits, strict=True):
            row[torch.as_tensor(split.train)] = True
        self._training = training.to(device)
        seeds = torch.tensor([trial.seed for trial in trials], device=device)
        self._order_keys = bits(seeds, _ORDER)
        self._dropout_keys = bits(seeds, _DROPOUT)
        self._lr = torch.tensor([trial.lr for trial in trials], device=device)

    def batches(self, first: int, last: int) -> Tensor:
        """(last - first, steps, M, B): the graph ids of each step, from epoch ``first`` to before ``last``."""
        epochs = torch.arange(first, last, device=self._device)
        keys = bits(self._order_keys, epochs[:, None])
        order = bits(keys[..., None], torch.arange(self._num_graphs, device=self._device))
        order = torch.where(self._training, order, _LAST).argsort(dim=-1, stable=True)
        places = self._places.flatten(1).expand(len(epochs), -1, -1)
        ids = torch.where(places >= 0, order.gather(-1, places.clamp(min=0)), -1)
        return ids.view(len(epochs), *self._places.shape).transpose(1, 2).contiguous()

    def dropout_keys(self, first: int, last: int) -> Tensor:
        """(last - first, steps, M): the dropout key of each step."""
        epochs = torch.arange(first, last, device=self._device)
        keys = bits(self._dropout_keys, epochs[:, None])
        return bits(keys[:, None], torch.arange(self.steps, device=self._device)[:, None])

    def learning_rates(self, epoch: int) -> Tensor:
        """(M,): linear decay by epoch, to 0 after the last one."""
        return self._lr * (1 - epoch / self.epochs)

    def block(self, first: int) -> int:
        """The end of the epochs from ``first`` on whose batches are planned at once."""
        room = 1 << 24 if self._device.type == "cuda" else 1 << 20
        return min(self.epochs, first + max(1, room // (self.members * self._num_graphs)))

    def needs(self, graphs: PackedGraphs) -> npt.NDArray[np.int64]:
        """(epochs, steps, 2): nodes and edges of the largest batch of any member, at every step of the training."""
        zero = torch.zeros(1, dtype=torch.int64, device=self._device)
        counts = torch.stack([torch.cat([ptr.diff(), zero]) for ptr in (graphs.node_ptr, graphs.edge_ptr)])
        needs, epoch = [], 0
        while epoch < self.epochs:
            end = self.block(epoch)
            totals = counts[:, self.batches(epoch, end)].sum(-1)  # id -1 has the zero at the end
            needs.append(totals.amax(-1).movedim(0, -1))
            epoch = end
        array: npt.NDArray[np.int64] = torch.cat(needs).cpu().numpy()
        return array


def choose_levels(needs: npt.NDArray[np.int64], members: int) -> tuple[list[Bounds], npt.NDArray[np.int64]]:
    """Choose a few static sizes ("levels") that waste the fewest padded rows over all steps.

    Steps differ in size: the last one of an epoch is short, and heavy-tailed sizes make some batches far larger than
    most. Sorted by rows, the steps of one level are contiguous. Dynamic programming over at most 256 candidate sizes
    finds where the levels end. A level must save as many rows, of all members together, as could be trained while its
    step is recorded.

    Returns:
        the bounds of each level, ascending; and the level of each step, (...) int64.
    """
    rows, edges = needs[..., 0].ravel(), needs[..., 1].ravel()
    sizes = np.unique(np.quantile(rows, np.linspace(0, 1, 256), method="higher"))
    upto = np.searchsorted(np.sort(rows), sizes, side="right")
    # Entry k: the cost of covering all steps up to size k with one level, and the sizes where levels end.
    cost, ends = (sizes * upto).astype(np.float64), [[k] for k in range(len(sizes))]
    best, best_ends = cost[-1], ends[-1]
    for _ in range(MOST_LEVELS - 1):
        table = cost[:, None] + sizes * np.maximum(upto - upto[:, None], 0)
        table[np.tril_indices(len(sizes))] = np.inf
        previous = table.argmin(0)
        cost, ends = table.min(0), [[*ends[p], k] for k, p in enumerate(previous)]
        if len(sizes) < 2 or (best - cost[-1]) * members < ROWS_A_LEVEL_COSTS:
            break
        best, best_ends = cost[-1], ends[-1]
    level = np.searchsorted(sizes[best_ends], rows)
    bounds = [Bounds(int(rows[level <= k].max()), int(edges[level <= k].max())) for k in range(len(best_ends))]
    return bounds, level.reshape(needs.shape[:-1])
